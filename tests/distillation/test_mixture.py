"""Distillation on several sources: shares, losses of each, a resume, a source that is added."""

from pathlib import Path
from typing import Any

import pytest

from tests.distillation.making import (
    assert_resumes_exactly,
    distill,
    pretrained,
    settings,
    task_settings,
    tune_teacher,
)
from tests.finetuning.making import labelled
from tests.training.runs import BOOKS, records
from zoo.data.cache import SAMPLE
from zoo.distillation.runs import DistillRun
from zoo.training.distributed.context import DistContext
from zoo.training.state.run_manifest import read_manifest

pytestmark = pytest.mark.usefixtures("shared_corpora")
ALICE = BOOKS / "alice.txt"
GLASS = BOOKS / "looking_glass.txt"
SOURCES = {
    "alice": {"paths": [str(ALICE)], "eval_paths": [str(GLASS)], "weight": 0.5},
    "glass": {"paths": [str(GLASS)], "eval_paths": [str(ALICE)], "weight": 0.5},
}


def tree(**changes: Any) -> dict[str, Any]:
    """Return the settings of a run on both sources, with losses of the student and the teacher."""
    recipe = {"objective_weight": 1.0, "terms": {"kl": {"kind": "kl"}}}
    values = settings(pretrained("gpt"), "gpt", distillation=recipe, **changes)
    values["data"] = {"sources": SOURCES}
    return values


def test_both_models_read_the_mixture(tmp_path: Path) -> None:
    """Losses of the student and of the teacher are logged by source, and the validation loss."""
    run = assert_resumes_exactly(tmp_path, tree(max_steps=6), 3)
    for record in records(run):
        parts = record["sources"]
        assert {name: part["share"] for name, part in parts.items()} == {"alice": 0.5, "glass": 0.5}
        assert {name: list(part["losses"]) for name, part in parts.items()} == {
            "alice": ["causal-lm", "kl"],
            "glass": ["causal-lm", "kl"],
        }
        mean = sum(part["losses"]["kl"] for part in parts.values()) / 2
        assert record["losses"]["kl"] == pytest.approx(mean, rel=1e-5)
        assert parts["alice"]["losses"]["kl"] != pytest.approx(parts["glass"]["losses"]["kl"])
    for record in records(run, "validation"):
        losses = [record["sources"][name]["loss"] for name in SOURCES]
        assert record["loss"] == pytest.approx(sum(losses) / 2, rel=1e-12)
        assert record["sources"]["alice"]["losses"].keys() >= {"causal-lm", "kl"}


def test_tables_have_weights(tmp_path: Path) -> None:
    """Exact shares, the loss of the labels of each table, and a resume with equal bytes."""
    file = labelled(tmp_path / "a.jsonl", 40)
    other = labelled(tmp_path / "b.jsonl", 12, seed=1)
    teacher = tune_teacher(tmp_path / "teacher", "text-classification", file)
    recipe = {"recipe": "logits", "objective_weight": 1.0}
    values = task_settings([teacher], teacher, "text-classification", file, distillation=recipe)
    values["data"] = {
        "train": [f"first={file}", f"second={other}"],
        "eval": [f"first={other}", f"second={file}"],
        "weights": {"first": 0.25, "second": 0.75},
    }
    run = assert_resumes_exactly(tmp_path, {**values, "max_steps": 6}, 3)
    for record in records(run):
        parts = record["sources"]
        assert {name: part["share"] for name, part in parts.items()} == values["data"]["weights"]
        mean = sum(part["share"] * part["losses"]["text-classification"] for part in parts.values())
        assert record["losses"]["text-classification"] == pytest.approx(mean, rel=1e-6)
        loss = sum(part["share"] * part["loss"] for part in parts.values())
        assert record["loss"] == pytest.approx(loss, rel=1e-5)
    for record in records(run, "validation"):
        first, second = record["sources"].values()
        assert first["losses"].keys() == second["losses"].keys() == record["losses"].keys()
        assert record["loss"] == pytest.approx((12 * first["loss"] + 40 * second["loss"]) / 52)


@pytest.mark.long
def test_a_source_is_added_where_a_student_continues(tmp_path: Path) -> None:
    parent = distill(tmp_path / "parent", tree(max_steps=4))
    weights: dict[str, Any] = {name: {"weight": 0.25} for name in SOURCES}
    weights["oz"] = {"paths": [str(SAMPLE / "ozma_of_oz.txt")], "weight": 0.5}
    child = tmp_path / "child"
    given = {"data": {"sources": weights}, "max_steps": 6}
    DistillRun({}, DistContext.initialize("cpu"), child, given).continue_from(parent)
    stages = read_manifest(child).mixture
    assert stages is not None
    assert [(stage.step, stage.rows, stage.counts) for stage in stages] == [
        (0, 0, {"alice": 1, "glass": 1}),
        (4, 16, {"alice": 1, "glass": 1, "oz": 2}),
    ]
    assert [record["sources"]["oz"]["share"] for record in records(child)[4:]] == [0.5, 0.5]
