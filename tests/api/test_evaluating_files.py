"""``zoo eval`` over many files: metrics of each file, in shards."""

import json
from pathlib import Path
from typing import Any

import pytest

import zoo
from tests.checkpoints import hub_checkpoint
from tests.inference.conftest import Small, small
from tests.warm import zoo as command
from zoo.api import Model

__all__ = ["hub_checkpoint", "small"]
TASK = "text-classification"


@pytest.fixture
def model(small: Small) -> Model:
    return small("BertForSequenceClassification")[0]


@pytest.fixture
def source(tmp_path: Path, model: Model) -> Path:
    """A folder of three tables with labels of the model."""
    labels = ["LABEL_0", "LABEL_1"]
    folder = tmp_path / "languages"
    folder.mkdir()
    for number, name in enumerate(("de", "en", "fr")):
        rows = [f"{'a b ' * (row + 1)},{labels[(row * 7 + number) % 2]}" for row in range(6)]
        (folder / f"{name}.csv").write_text("\n".join(["text,label", *rows]) + "\n")
    return folder


def test_each_file_has_the_metrics_of_its_own_evaluation(
    model: Model, source: Path, tmp_path: Path
) -> None:
    out = tmp_path / "metrics"
    reference = str(model.checkpoint.path)
    words: list[Any] = ["eval", reference, "--task", TASK, "--eval", source, "--backend", "cpu"]
    words += ["-o", out]
    first = command(*words, "--shard", "1/2", "--json")
    assert first.returncode == 0, first.stderr
    assert json.loads(first.stdout)["files"]["remaining"] == 1
    second = command(*words, "--shard", "2/2")
    assert second.returncode == 0, second.stderr
    assert f"evaluated 1 of 3 files: {out}" in second.stdout and "accuracy" in second.stdout
    for name in ("de", "en", "fr"):
        data = source / f"{name}.csv"
        expected = zoo.evaluate(reference, task=TASK, eval=data, backend="cpu", record=False)
        written = json.loads((out / f"{name}.json").read_text())
        assert written["metrics"] == dict(expected.metrics)
        assert written["data"] == [str(data)] and written["reference"] == reference
    assert "evaluations" not in json.loads((model.checkpoint.path / "zoo.json").read_text())
    again = command(*words)
    assert again.returncode == 2 and "de.json exists; --resume continues" in again.stderr
    done = command(*words, "--resume", "--json")
    assert json.loads(done.stdout)["files"]["skipped"] == 3


@pytest.mark.long
def test_options_of_one_evaluation_are_refused(model: Model, source: Path, tmp_path: Path) -> None:
    words: list[Any] = ["eval", model.checkpoint.path, "--task", TASK, "--eval", source]
    out = ["-o", tmp_path / "out"]
    cases = (
        ([*out, "--predictions", tmp_path / "p.csv"], "--predictions is for one evaluation"),
        ([*out, "--report", tmp_path / "r.html"], "--report is for one evaluation"),
        ([*out, "--figures", tmp_path / "f"], "--figures is for one evaluation"),
        (["--shard", "1/2"], "--shard is for --output FOLDER"),
        (["--resume"], "--resume is for --output FOLDER"),
        ([*out, "--shard", "3/2"], "there is no shard 3 of 2"),
        (["-o", source / "out"], "is inside the input"),
    )
    for options, message in cases:
        done = command(*words, *options)
        assert done.returncode == 2 and message in done.stderr, done.stderr
        assert done.stderr.count("\n") == 1 and done.stdout == ""
    assert not (tmp_path / "out").exists()
