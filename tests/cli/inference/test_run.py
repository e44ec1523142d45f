"""The command ``zoo run``: input sources, output formats and errors.

The results of the tasks are tested in ``tests/tasks``; one value of each is checked here.
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers

from tests.checkpoints import Make
from tests.warm import zoo
from zoo.conversion.convert import convert
from zoo.errors import UsageError
from zoo.hub.source import CheckpointDir
from zoo.plugins.tasks import find_task
from zoo.sentence_models import hub_pooling_files
from zoo.sentence_models.pooling import Pooling

TASKS = {
    "embed": "BertModel",
    "features": "BertModel",
    "fill-mask": "BertForMaskedLM",
    "classify": "BertForSequenceClassification",
}
LONG = "a b c d " * 20  # 82 tokens with [CLS] and [SEP]; the model has 40 positions


def results(done: "subprocess.CompletedProcess[str]") -> list[dict[str, Any]]:
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def refused(done: "subprocess.CompletedProcess[str]", *what: str) -> None:
    """Check for exactly one error line, the last, and the exit code of a usage error."""
    assert done.returncode == 2, done.stderr
    errors = [line for line in done.stderr.splitlines() if not line.startswith("warning: ")]
    assert errors == done.stderr.splitlines()[-1:] and errors[0].startswith("error: ")
    for part in what:
        assert part in errors[0]


@pytest.fixture
def model(hub_checkpoint: Make, tmp_path: Path) -> Path:
    """Convert a sentence encoder to the zoo's layout; its source is in the same directory."""
    convert(CheckpointDir(hub_checkpoint("BertModel"), "source"), tmp_path / "ours")
    return tmp_path / "ours"


def states(source: Path, text: str, architecture: str = "BertModel") -> Any:
    """Return the reference library's outputs for one text."""
    tokenizer = transformers.BertTokenizer.from_pretrained(source)
    network = getattr(transformers, architecture).from_pretrained(source).eval()
    with torch.inference_mode():
        return network(**tokenizer(text, return_tensors="pt"))


def check_embed(result: dict[str, Any], source: Path) -> None:
    expected = states(source, result["text"]).last_hidden_state[0].mean(dim=0)
    np.testing.assert_allclose(result["embedding"], expected, atol=1e-5)


def check_features(result: dict[str, Any], source: Path) -> None:
    expected = states(source, result["text"]).last_hidden_state[0]
    np.testing.assert_allclose(result["layers"]["2"], expected, atol=1e-5)


def check_fill_mask(result: dict[str, Any], source: Path) -> None:
    logits = states(source, result["text"], "BertForMaskedLM").logits[0]
    place = 1 + result["text"].split().index("[MASK]")
    (mask,) = result["masks"]
    assert len(mask["predictions"]) == 5
    score = mask["predictions"][0]["score"]
    assert score == pytest.approx(logits[place].softmax(dim=-1).max().item(), rel=1e-4)


def check_classify(result: dict[str, Any], source: Path) -> None:
    logits = states(source, result["text"], "BertForSequenceClassification").logits[0]
    expected = logits.softmax(dim=-1)
    np.testing.assert_allclose(list(result["scores"].values()), expected, atol=1e-5)


@pytest.mark.by_default("embed")
@pytest.mark.parametrize("task", TASKS)
def test_a_file_of_texts(task: str, hub_checkpoint: Make, tmp_path: Path) -> None:
    texts = ["a [MASK] c", "[MASK]", "d e [MASK] ab j"]
    (tmp_path / "texts.txt").write_text("\n".join(texts) + "\n")
    source = hub_checkpoint(TASKS[task])
    done = zoo("run", task, source, "--input", tmp_path / "texts.txt")
    features = results(done)
    assert [result["text"] for result in features] == texts
    assert [result for result in features if "truncated" in result] == []
    check = {
        "embed": check_embed,
        "features": check_features,
        "fill-mask": check_fill_mask,
        "classify": check_classify,
    }[task]
    for result in features:
        check(result, source)


def test_json_lines_from_standard_input(model: Path, tmp_path: Path) -> None:
    lines = [{"id": 7, "text": "a b"}, {"text": "c", "from": ["x"]}, {"id": 9, "text": "a b"}]
    stdin = "\n\n".join(map(json.dumps, lines)) + "\n"
    result = results(zoo("run", "embed", model, "-", stdin=stdin))
    assert [{k: v for k, v in r.items() if k != "embedding"} for r in result] == lines
    assert result[0]["embedding"] == result[2]["embedding"] != result[1]["embedding"]
    check_embed(result[1], tmp_path / "source")


@pytest.mark.long
def test_plain_lines_from_standard_input(model: Path) -> None:
    features = results(zoo("run", "features", model, "-", "--layers", "0,-1", stdin="a\n\nb c\n"))
    assert [result["text"] for result in features] == ["a", "", "b c"]
    assert [list(result["layers"]) for result in features] == [["0", "2"]] * 3
    assert [len(result["tokens"]) for result in features] == [3, 2, 4]


def test_one_object_on_request(model: Path) -> None:
    (value,) = results(zoo("run", "embed", model, "a", "b", "--json"))
    assert value["task"] == "embed"
    assert [result["text"] for result in value["results"]] == ["a", "b"]


def test_what_is_cut_is_said_in_the_record_and_in_a_line(model: Path) -> None:
    done = zoo("run", "embed", model, "a b", LONG)
    short, long = results(done)
    assert "truncated" not in short
    assert long["truncated"] == 42
    line = "warning: 1 of 2 texts was longer than 40 tokens and was cut; --doc-stride 10 reads"
    assert done.stderr.splitlines()[-1].startswith(line)
    assert done.stderr.count("longer than") == 1
    (shorter,) = results(zoo("run", "embed", model, LONG, "--max-seq-len", "12"))
    assert shorter["truncated"] == 70


@pytest.mark.by_default('{"text": 3}')
@pytest.mark.parametrize(
    ("line", "why"),
    [
        (b'{"text": 3}', "text is of type int, not a string"),
        (b"[1, 2]", "is not a JSON object"),
        (b'{"text": "a"', "is not JSON"),
        (b'{"text": "\xff"}', "is not UTF-8"),
        (b'{"text": "a", "embedding": 1}', "has the key 'embedding', which embed writes itself"),
    ],
)
def test_a_bad_line_is_named_after_what_stands_before_it(
    model: Path, tmp_path: Path, line: bytes, why: str
) -> None:
    path = tmp_path / "texts.jsonl"
    path.write_bytes(b'{"text": "a"}\n{"text": "b"}\n' + line + b'\n{"text": "c"}\n')
    done = zoo("run", "embed", model, "--input", path)
    refused(done, f"{path}:3", why)
    assert [json.loads(text)["text"] for text in done.stdout.splitlines()] == ["a", "b"]


def test_input_that_is_missing_or_given_twice(model: Path, tmp_path: Path) -> None:
    refused(zoo("run", "embed", model), "there is no text to work on", "--input FILE")
    refused(zoo("run", "embed", model, "--input", tmp_path / "no.txt"), "cannot read", "no.txt")
    both = zoo("run", "embed", model, "a", "--input", tmp_path / "no.txt")
    refused(both, "both as arguments and in a file")


def test_an_unknown_task_lists_the_nearest() -> None:
    refused(zoo("run", "fillmask", "x", "a"), "no task is called 'fillmask'", "fill-mask")
    refused(zoo("run", "xyz", "x", "a"), "answer, choose, classify")
    refused(zoo("run", "pet", "x", "a"), "use classify for models of pet")
    with pytest.raises(UsageError, match="use text-classification for models of setfit"):
        find_task("setfit", "evaluate")


def test_an_option_of_another_task_is_refused(model: Path) -> None:
    refused(zoo("run", "embed", model, "a", "--top-k", "3"), "--top-k")
    refused(zoo("run", "features", model, "a", "--layers", "one"), "not a list of numbers")


REFUSED_EARLY = """
import sys
from zoo.cli import main
try:
    main(sys.argv[1:])
finally:
    print(*sys.modules.keys() & {"torch", "onnxruntime", "numpy"})
"""


def test_a_head_that_does_not_serve_a_task_is_refused_before_anything_is_loaded(
    model: Path,
) -> None:
    (model / "model.safetensors").unlink()
    done = subprocess.run(
        [sys.executable, "-c", REFUSED_EARLY, "run", "classify", str(model), "a"],
        capture_output=True,
        text=True,
        check=False,
    )
    refused(
        done,
        f"{model} has the head none, which serves embed, similarity, features, and not classify",
    )
    assert done.stdout == "\n"


def test_prompts_of_sentence_encoders(hub_checkpoint: Make, tmp_path: Path) -> None:
    source = hub_checkpoint("BertModel")
    settings = Pooling(prompts={"query": "a b ", "passage": "c "}, similarity_fn_name="dot")
    for name, content in hub_pooling_files(settings, 32).items():
        (source / name).parent.mkdir(exist_ok=True)
        (source / name).write_bytes(content)
    convert(CheckpointDir(source, "source"), tmp_path / "ours")
    model = tmp_path / "ours"

    def run(task: str, *arguments: str) -> Any:
        (result,) = results(zoo("run", task, model, *arguments))
        return result["embedding" if task == "embed" else task]

    assert run("embed", "d", "--prompt", "query") == run("embed", "a b d")
    assert run("embed", "d", "--prompt-text", "c ") == run("embed", "c d")
    first, second = (np.array(run("embed", text)) for text in ("a b d", "a b e"))
    similarity = run("similarity", "d", "e", "--prompt", "query")
    assert similarity == pytest.approx(float(first @ second), rel=1e-4)
    refused(zoo("run", "embed", model, "d", "--prompt", "pasage"), "query, passage", "passage?")
    both = ("--prompt", "query", "--prompt-text", "c ")
    refused(zoo("run", "embed", model, "d", *both), "a name or a text, and not both")


def test_a_table_is_read_by_its_columns(hub_checkpoint: Make, tmp_path: Path) -> None:
    source = hub_checkpoint("BertForSequenceClassification")
    path = tmp_path / "rows.csv"
    path.write_text('sentence,label,id\n"a b, c",x,1\nd e,y,2\n')
    done = zoo("run", "classify", source, "--input", path)
    found = results(done)
    assert [(result["sentence"], result["id"]) for result in found] == [
        ("a b, c", "1"),
        ("d e", "2"),
    ]
    assert "keys of their own called label" in done.stderr
    for result in found:
        check_classify({**result, "text": result["sentence"]}, source)
    stdin = path.read_text()
    piped = zoo("run", "classify", source, "-", "--format", "csv", "--text", "2", stdin=stdin)
    assert [result["text"] for result in results(piped)] == ["label", "x", "y"]  # no header
    refused(
        zoo("run", "classify", source, "--input", path, "--text", "sentense"), "did you mean sente"
    )
    refused(zoo("run", "classify", source, "-", stdin='{"txt": "a"}\n'), "its keys are 'txt'")
