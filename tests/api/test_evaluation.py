"""``zoo.evaluate``: the numbers of ``zoo eval``, in Python."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import zoo
from tests.checkpoints import hub_checkpoint
from tests.inference.conftest import Small, small
from zoo.cli import cli
from zoo.errors import UsageError

__all__ = ["hub_checkpoint", "small"]
TASK = "text-classification"


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "t.tsv"
    rows = [f"{' '.join('abcdefgh'[: k % 8 + 1])}\t{'xy'[k % 3 == 0]}" for k in range(40)]
    path.write_text("\n".join(["s\tl", *rows]))
    return path


def test_numbers_are_those_of_the_command(small: Small, table: Path) -> None:
    model, _ = small("BertForSequenceClassification", id2label={0: "x", 1: "y"})
    path = model.checkpoint.path
    words = ["eval", path, "--task", TASK, "--eval", table, "--text", "s", "--label", "l"]
    words += ["--limit", "30", "--json", "--no-record"]
    printed = CliRunner().invoke(cli, [str(word) for word in words])
    expected = json.loads(printed.stdout)
    for reference in (path, str(path), model):
        result = zoo.evaluate(reference, task=TASK, eval=table, text="s", label="l", limit=30)
        assert dict(result.metrics) == expected["metrics"]
        assert json.loads(json.dumps(result.details)) == {k: expected[k] for k in result.details}
    assert result.metrics["samples"] == 30
    several = zoo.evaluate(model, task=TASK, eval=[table, str(table)], text="s", label="l")
    assert several.metrics["samples"] == 40  # a file that is given twice is read once


def test_unsuitable_arguments_are_named(small: Small, table: Path) -> None:
    model, _ = small("BertForSequenceClassification", id2label={0: "x", 1: "y"})
    cases: list[tuple[dict[str, Any], str]] = [
        ({"task": "text-clasification"}, "did you mean text-classification"),
        ({"task": "perplexity"}, "has the head sequence-classification"),
        ({"task": TASK, "lable": "l"}, "has no option 'lable'; did you mean label"),
        ({"task": TASK, "device": "cpu"}, "a loaded model already has its device"),
        ({"task": TASK, "backend": "cpu"}, "a loaded model already has its backend"),
    ]
    for options, message in cases:
        with pytest.raises(UsageError, match=message):
            zoo.evaluate(model, eval=table, **options)
