"""A dirty CSV file: all problems in one list, or skipped and counted; what the data looks like."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests import warm
from tests.finetuning.conftest import Pretrained
from tests.finetuning.making import assert_resumes_exactly, finetune, settings, texts, write_table
from tests.training.runs import records
from zoo.api.evaluation import evaluate
from zoo.checkpoint import load_checkpoint
from zoo.data.readers.problems import InvalidRows
from zoo.data.readers.review import DataReview, Reviewed
from zoo.errors import UsageError

BAD = {  # line -> what is wrong
    23: ("a b", "has 1 columns, and the header has 2"),
    24: ("a, b,yes", "has 3 columns, and the header has 2"),
    25: ('"a b,yes', "opens a quote that is not closed"),
    26: ('"a" b,yes', "has text after a quoted cell"),
    27: ("a\0b,yes", "has a NUL character"),
    28: ("a b, ", "has no label"),
}


def dirty(folder: Path, count: int = 20) -> Path:
    """Write a table with a byte-order mark, good rows, bad ones and strange ones."""
    path = folder / "my data" / "t.csv"
    path.parent.mkdir(exist_ok=True)
    good = [f"{text},{'yes' if text[0] <= 'e' else 'no'}" for text in texts(count)]
    strange = [",yes", "same,yes", "same,no", "j j,Yes", '"c, d",yes', "j j,Yes"]
    rows = ["text,label", *good, "", *(row for row, _ in BAD.values()), *strange]
    path.write_text("\ufeff" + "\n".join(rows) + "\n", encoding="utf-8")
    return path


def arguments(model: Path, table: Path, folder: Path, *more: object) -> Sequence[object]:
    task = ("--task", "text-classification", "--train", table)
    return ("finetune", model, *task, "--max-steps", "1", "--device", "cpu", "-o", folder, *more)


def test_all_problems_are_listed_at_once(pretrained: Pretrained, tmp_path: Path) -> None:
    table = dirty(tmp_path)
    done = warm.zoo(*arguments(pretrained()[0], table, tmp_path / "run"), cwd=tmp_path)
    assert done.returncode == 2 and not (tmp_path / "run").exists()
    first, *lines = done.stderr[done.stderr.index("error: ") :].splitlines()
    assert first == (
        "error: 6 rows cannot be used; correct them, or leave them out with --skip-invalid"
    )
    for line, (number, (_, reason)) in zip(lines, BAD.items(), strict=True):
        assert line.startswith(f"  {table}:{number} {reason}")


def test_they_are_skipped_and_counted(pretrained: Pretrained, tmp_path: Path) -> None:
    """In the messages, ``metrics.jsonl``, ``run.json`` and the model's manifest."""
    table, run = dirty(tmp_path), tmp_path / "run"
    done = warm.zoo(*arguments(pretrained()[0], table, run, "--skip-invalid"), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    skipped = {"train": 6, "eval": 0}
    assert f"warning: 6 rows are skipped, such as {table}:23 has 1 columns" in done.stderr
    assert "the labels 'Yes', 'yes' differ in case only" in done.stderr
    assert "have an empty text" in done.stderr and "have the text of another one" in done.stderr
    assert "repeat others" in done.stderr and "to train on: Yes (2), no (" in done.stderr
    first = json.loads((run / "metrics.jsonl").read_text().splitlines()[0])
    assert first == {"step": 0, "split": "data", "skipped": skipped}
    data = json.loads((run / "run.json").read_text())["data"]
    training: Any = load_checkpoint(run / "model").manifest.training
    assert data["skipped"] == training["data"]["skipped"] == skipped
    assert sum(data["rows"].values()) == 26
    counts = [sum(counts.values()) for counts in data["label_counts"].values()]
    assert counts == [data["rows"]["train"], data["rows"]["eval"]]


@pytest.mark.long
def test_a_run_with_skipped_rows_resumes_exactly(pretrained: Pretrained, tmp_path: Path) -> None:
    model, _ = pretrained(hidden_dropout_prob=0.1)
    data = {"skip_invalid": True}
    tree = settings(model, dirty(tmp_path, 40), data=data, save_total_limit=9)
    assert records(assert_resumes_exactly(tmp_path, tree, 6), "data")[0]["skipped"]["train"] == 6


def test_an_evaluation_lists_or_skips_them(pretrained: Pretrained, tmp_path: Path) -> None:
    table = dirty(tmp_path)
    tree = settings(pretrained()[0], table, data={"skip_invalid": True}, max_steps=1)
    model = finetune(tmp_path / "run", tree) / "model"
    table.write_text(table.read_text(encoding="utf-8") + "a,maybe\n", encoding="utf-8")
    with pytest.raises(InvalidRows, match=r"7 rows cannot be used.*\n.*t\.csv:23 has 1 columns"):
        evaluate(model, task="text-classification", eval=table, backend="cpu")
    options = ("--task", "text-classification", "--eval", table, "--backend", "cpu", "--json")
    done = warm.zoo("eval", model, *options, "--skip-invalid", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["metrics"]["skipped"] == 7
    (entry,) = load_checkpoint(model).manifest.evaluations
    assert (entry.metrics["skipped"], entry.metrics["samples"]) == (7, 26)
    done = warm.zoo("eval", model, *options, cwd=tmp_path)
    assert done.returncode == 2 and len(json.loads(done.stdout)["details"]) == 7


@pytest.mark.long  # the gate reads the table as the evaluation of the test above does
def test_an_export_lists_them(pretrained: Pretrained, tmp_path: Path) -> None:
    table = dirty(tmp_path)
    tree = settings(pretrained()[0], table, data={"skip_invalid": True}, max_steps=1)
    model = finetune(tmp_path / "run", tree) / "model"
    table.write_text(table.read_text(encoding="utf-8") + "a,maybe\n", encoding="utf-8")
    quantized = ("--onnx", "--int8")
    done = warm.zoo("export", model, *quantized, "--eval", table, "-o", tmp_path / "x")
    assert done.returncode == 2
    assert "7 rows cannot be used; correct them, or leave them out\n" in done.stderr


@pytest.mark.parametrize("label", ["1_000", "\uff13", "1e200", "1,5", "nan", "infinity"])
def test_numbers_that_are_none(pretrained: Pretrained, tmp_path: Path, label: str) -> None:
    rows = [f"{text}\t{k}" for k, text in enumerate(texts(20))]
    (tmp_path / "t.tsv").write_text("\n".join(["text\tlabel", *rows, f"a\t{label}"]) + "\n")
    tree = settings(pretrained()[0], tmp_path / "t.tsv", task="regression")
    with pytest.raises(InvalidRows, match=r"t\.tsv:22: the label is "):
        finetune(tmp_path / "run", tree)


def test_twenty_problems_are_listed_and_all_counted(pretrained: Pretrained, tmp_path: Path) -> None:
    rows = [f"{text},yes" for text in texts(20)] + ["a"] * 50
    (tmp_path / "t.csv").write_text("\n".join(["text,label", *rows]) + "\n")
    with pytest.raises(InvalidRows, match="50 rows cannot be used") as refused:
        finetune(tmp_path / "run", settings(pretrained()[0], tmp_path / "t.csv"))
    assert len(refused.value.details) == 21 and refused.value.details[-1] == "... and 30 more"


def test_repeated_and_contradicting_samples() -> None:
    review = DataReview()
    rows = [("a", "x"), ("b", "x"), ("a", "x"), ("a", "y"), (" ", "X"), ("c", "y")]
    for number, (text, label) in enumerate(rows):
        review.add(Reviewed([text], (label,), [label]), f"t.csv:{number}")
    lines = review.warnings("samples", lambda numbers: {k: f"t.csv:{k}" for k in numbers})
    assert lines == [
        "1 samples have an empty text; the first is t.csv:4",
        "1 samples repeat others: t.csv:2 and t.csv:0",
        "1 samples have the text of another one and a different label: t.csv:3 and t.csv:2",
        "the labels 'X', 'x' differ in case only: write them alike",
    ]
    assert review.labels == {"x": 3, "y": 2, "X": 1}


@pytest.mark.parametrize("which", ["training", "evaluation"])
def test_a_split_without_a_row_that_suits_the_task_is_refused(
    which: str, pretrained: Pretrained, tmp_path: Path
) -> None:
    """The rows are read, and the loss cannot use any of them."""
    scores = {"training": 1.0, "evaluation": 1.0, which: 5.0}
    data: dict[str, Any] = {"pair": "pair", "label": "label", "skip_invalid": True}
    tables = {}
    for name, score in scores.items():
        rows = [{"text": f"a {text}", "pair": text, "label": score} for text in texts(8)]
        tables[name] = write_table(tmp_path / f"{name}.jsonl", rows)
    data["eval"] = [str(tables["evaluation"])]
    changes = {"task": "sentence-embedding", "task_args": {"loss": "cosine"}, "data": data}
    with pytest.raises(UsageError, match=f"no row of the {which} data can be used"):
        finetune(tmp_path / "run", settings(pretrained()[0], tables["training"], **changes))
