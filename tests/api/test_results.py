"""The functions of ``zoo`` return and raise what the commands print and exit with."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import zoo
from tests import checkpoints
from tests.checkpoints import Make
from zoo.cli import cli
from zoo.errors import UsageError, VerificationError
from zoo.io.digests.checks import Check

hub_checkpoint = checkpoints.hub_checkpoint


def printed(*arguments: object) -> Any:
    """Return what a command prints with ``--json``."""
    outcome = CliRunner().invoke(cli, [*map(str, arguments), "--json"])
    assert outcome.exception is None, outcome.exception
    return json.loads(outcome.stdout)


def raised(*arguments: object) -> BaseException:
    """Return the error of a command."""
    outcome = CliRunner().invoke(cli, [*map(str, arguments)])
    assert outcome.exception is not None
    return outcome.exception


@pytest.fixture
def source(hub_checkpoint: Make) -> Path:
    return hub_checkpoint("BertForMaskedLM")


@pytest.fixture
def model(source: Path, tmp_path: Path) -> Path:
    report = zoo.convert(source, output=tmp_path / "ours")
    assert report.path == tmp_path / "ours"
    return report.path


def test_convert(source: Path, tmp_path: Path) -> None:
    names = (tmp_path / "function", tmp_path / "command")
    report = zoo.convert(source, output=names[0], head="none", dtype="float16", licence="mit")
    options = ("--head", "none", "--dtype", "float16", "--licence", "mit")
    expected = printed("convert", source, "-o", names[1], *options)
    assert report.to_dict() == expected | {"path": str(names[0])}
    for name in ("config.json", "model.safetensors", "tokenizer.json", "zoo.json"):
        assert (names[0] / name).read_bytes() == (names[1] / name).read_bytes()
    error = raised("convert", source)
    with pytest.raises(UsageError) as refusal:
        zoo.convert(source)
    assert str(refusal.value) == str(error)
    dry_run = zoo.convert(source, dry_run=True)
    assert dry_run.path is None
    labels = zoo.convert(
        source, head="sequence-classification", init_head=True, labels=["a", "b"], dry_run=True
    )
    assert labels.to_dict() == printed(
        "convert", source, "--head", labels.head, "--init-head", "--labels", "a, b", "--dry-run"
    )


def test_verify(model: Path) -> None:
    shown: list[Check] = []
    verification = zoo.verify(model, parity=False, on_check=shown.append)
    assert verification.to_dict() == printed("verify", model, "--no-parity")
    assert tuple(shown) == verification.checks
    weights = (model / "model.safetensors").read_bytes()
    (model / "model.safetensors").write_bytes(weights[:-1] + bytes([weights[-1] ^ 1]))
    error = raised("verify", model, "--no-parity")
    with pytest.raises(VerificationError, match="failed: digests, ties: ") as failure:
        zoo.verify(str(model), parity=False)
    assert str(failure.value) == str(error)


def test_retokenize(model: Path, tmp_path: Path) -> None:
    texts = tmp_path / "texts.txt"
    texts.write_text("abc abd\ncab bad\n" * 20)
    names = (tmp_path / "function", tmp_path / "command")
    result = zoo.retokenize(
        model, tokenizer="train", train=texts, vocab_size=40, keep=False, seed=3, output=names[0]
    )
    options = ("--tokenizer", "train", "--train", texts, "--vocab-size", 40, "--no-keep")
    expected = printed("retokenize", model, *options, "--seed", 3, "-o", names[1])
    assert result.to_dict() == expected | {"path": str(names[0])}
    assert "composed" in result._repr_html_()
    weights = [(path / "model.safetensors").read_bytes() for path in names]
    assert weights[0] == weights[1]


def test_push_lists_files_and_sends_none(source: Path, model: Path, tmp_path: Path) -> None:
    directory = tmp_path / "hub"
    zoo.convert(model, to="hub", output=directory)
    upload = zoo.push(directory, "organisation/name", licence="mit")
    expected = printed("push", directory, "organisation/name", "--licence", "mit")
    assert upload.to_dict() == expected
    assert "nothing was sent" in upload._repr_html_()
    assert upload.commit is None and "model.safetensors" in upload.plan.files
    with pytest.raises(UsageError) as refusal:
        zoo.push(model, "name")
    assert str(refusal.value) == str(raised("push", model, "name"))


def test_export(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    exported = zoo.export(model, head="none", int8=True, max_drop=1.0)
    assert exported.path == Path("ours-onnx")
    options = ("--head", "none", "--int8", "--max-drop", 1.0)
    assert "<td style=" in exported._repr_html_() and "ours-onnx" in exported._repr_html_()
    expected = printed("export", model, *options, "-o", "other")
    assert exported.to_dict() == expected
    cases: list[tuple[dict[str, Any], tuple[object, ...]]] = [
        ({"max_drop": 0.1}, ("--max-drop", 0.1)),
        ({"to": "static", "cache": True}, ("--to", "static", "--cache")),
        ({"to": "openvino", "int8": "static"}, ("--to", "openvino", "--int8", "static")),
        ({}, ()),
    ]
    for arguments, words in cases:
        with pytest.raises(UsageError) as refusal:
            zoo.export(model, **arguments)
        assert str(refusal.value) == str(raised("export", model, *words))
    with pytest.raises(UsageError, match="--level is not an option of --to onnx"):
        zoo.export(model, level=3)


def test_look(model: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    texts = ["a b [MASK] c", "c b"]
    look = zoo.look(model, texts, max_seq_len=5, output=page)
    assert look.to_json() == printed("look", model, *texts, "--max-seq-len", 5)
    written = page.read_text()
    printed("look", model, *texts, "--max-seq-len", 5, "-o", page, "--force")
    assert page.read_text() == written
    assert [view.text for view in zoo.look(model, "c b").texts] == ["c b"]
    for wrong in ([], ["a", "b", "c"]):
        with pytest.raises(UsageError, match="give one, or two to compare"):
            zoo.look(model, wrong)
    with pytest.raises(UsageError, match="exists"):
        zoo.look(model, texts, output=page)


def test_run(model: Path, tmp_path: Path) -> None:
    texts = ["a [MASK] c", "b [MASK]"]
    results = zoo.run("fill-mask", model, texts, top_k=2)
    assert results.to_dict() == printed("run", "fill-mask", model, *texts, "--top-k", 2)
    assert len(results) == 2 and results[1]["text"] == "b [MASK]"
    assert [row["text"] for row in zoo.run("fill-mask", model, texts[0])] == texts[:1]
    table = tmp_path / "t.csv"
    table.write_text("n,body\n1,a b\n2,c\n")
    written = zoo.run("features", model, input=table, text="body", output=tmp_path / "one.jsonl")
    other = tmp_path / "two.jsonl"
    value = printed("run", "features", model, "--input", table, "--text", "body", "-o", other)
    assert written.to_dict() == value | {"output": str(tmp_path / "one.jsonl")}
    assert (tmp_path / "one.jsonl").read_bytes() == other.read_bytes()
    cases: list[tuple[dict[str, Any], tuple[object, ...]]] = [
        ({"texts": ["a"], "input": table}, ("a", "--input", table)),
        ({"texts": []}, ()),
    ]
    for arguments, words in cases:
        with pytest.raises(UsageError) as refusal:
            zoo.run("features", model, **arguments)
        assert str(refusal.value) == str(raised("run", "features", model, *words))
    for wrong, message in (
        ({"topk": 2}, "has no option 'topk'"),
        ({"resume": True}, "--resume is for --output FILE"),
        ({"texts": ["-"]}, "stands for standard input"),
    ):
        arguments = {"texts": texts, **wrong}
        with pytest.raises(UsageError, match=message):
            zoo.run("fill-mask", model, **arguments)


def report_without_origin(path: Path) -> str:
    """Return a report without the command that made it, which Python has not."""
    command = r"(?<=<h2>How to repeat it</h2>).*?(?=<details>)"
    text, count = re.subn(command, "", path.read_text("utf-8"), flags=re.DOTALL)
    assert count == 1
    return text


def test_evaluate_writes_the_files_of_the_command(model: Path, tmp_path: Path) -> None:
    text = tmp_path / "book.txt"
    text.write_text("a b c d\nb c a\n" * 8)
    paths: dict[str, Any] = {"predictions": tmp_path / "p.jsonl", "report": tmp_path / "r.html"}
    task = "pseudo-perplexity"
    result = zoo.evaluate(model, task=task, eval=text, limit=4, **paths)
    again = ("--predictions", paths["predictions"], "--report", paths["report"], "--force")
    predictions = paths["predictions"].read_bytes()
    report = report_without_origin(paths["report"])
    expected = printed("eval", model, "--task", task, "--eval", text, "--limit", 4, *again)
    assert dict(result.metrics) == expected["metrics"] and expected["recorded"]
    assert paths["predictions"].read_bytes() == predictions
    assert report_without_origin(paths["report"]) == report
    manifest = json.loads((model / "zoo.json").read_text())
    assert [entry["task"] for entry in manifest["evaluations"]] == [task]
    with pytest.raises(UsageError, match="exists"):
        zoo.evaluate(model, task=task, eval=text, **paths)
    cases: list[tuple[dict[str, Any], tuple[object, ...]]] = [
        ({}, ()),
        ({"task": task, "excel_safe": True}, ("--task", task, "--excel-safe")),
        ({"task": task, "shots": 3}, ("--task", task, "--shots", 3)),
        ({"suite": "glue", "revision": "x"}, ("--suite", "glue", "--revision", "x")),
        ({"suite": "glue", "report": "r.html"}, ("--suite", "glue", "--report", "r.html")),
    ]
    for arguments, words in cases:
        with pytest.raises(UsageError) as refusal:
            zoo.evaluate(model, eval=text, **arguments)
        assert str(refusal.value) == str(raised("eval", model, "--eval", text, *words))
