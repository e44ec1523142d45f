"""All families as students of themselves, and pairs of two families."""

import math
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
from tests.families.every import every_family
from tests.finetuning.making import labelled
from tests.training.runs import records
from zoo.errors import UsageError
from zoo.plugins import all_families

FEW = {"max_steps": 2, "eval_steps": 2, "save_steps": 2}
FAMILIES = (
    *("albert", "bert", "bigbird", "deberta", "distilbert", "electra", "elmo", "gpt"),
    *("longformer", "modernbert", "roberta", "t5"),
)


def losses(path: Path, tree: dict[str, Any]) -> dict[str, float]:
    run = distill(path, tree)
    return records(run, "validation")[-1]["losses"]  # type: ignore[no-any-return]


def test_every_built_in_family_is_here() -> None:
    assert set(FAMILIES) <= set(all_families())


# One for each objective. Other tests distil a recurrent teacher and one with two stacks.
@pytest.mark.by_default("bert")
@pytest.mark.parametrize("family", every_family(FAMILIES, default=("bert", "electra", "gpt")))
def test_a_family_teaches_itself(family: str, tmp_path: Path) -> None:
    result = losses(tmp_path / "run", settings(pretrained(family), family, **FEW))
    assert "kl" in {name.partition("-")[0] for name in result}
    assert {name: value for name, value in result.items() if not math.isfinite(value)} == {}


@pytest.mark.long
def test_a_recurrent_teacher_carries_a_state_of_its_own(tmp_path: Path) -> None:
    """A student that equals its teacher has no divergence, in later steps, too."""
    path = pretrained("elmo")
    still = {"config": {"dropout": 0.0}, "optimizer": {"learning_rate": 1e-30}}
    tree = settings(path, str(path), max_steps=6, seq_len=16, save_total_limit=9, **still)
    run = assert_resumes_exactly(tmp_path, tree, 3)
    values = [record["losses"] for record in records(run)]
    assert len(values) == 6
    for record in values:
        divergences = [value for name, value in record.items() if name.startswith("kl")]
        assert len(divergences) == 2
        assert divergences == pytest.approx([0, 0], abs=1e-6)


@pytest.mark.long
def test_sampled_words_are_not_compared(tmp_path: Path) -> None:
    options = {"objective_args": {"num_sampled": 8}}
    with pytest.raises(UsageError, match="sampled words"):
        distill(tmp_path / "run", settings(pretrained("elmo"), "elmo", **options))


def test_a_student_of_another_vocabulary_is_refused(tmp_path: Path) -> None:
    tree = settings(pretrained("roberta"), str(pretrained("distilbert")), **FEW)
    with pytest.raises(UsageError, match="different tokens"):
        distill(tmp_path / "run", tree)


@pytest.mark.long
def test_a_new_student_has_the_vocabulary_of_a_teacher_of_another_family(tmp_path: Path) -> None:
    result = losses(tmp_path / "run", settings(pretrained("roberta"), "distilbert", **FEW))
    assert set(result) == {"masked-lm", "kl", "cosine"}


@pytest.mark.long
def test_a_recurrent_classifier_learns_from_a_transformer(tmp_path: Path) -> None:
    """Tang et al. 2019, arXiv:1903.12136, section 3: the mean squared error of the logits."""
    task, file = "text-classification", labelled(tmp_path / "t.jsonl")
    teacher = tune_teacher(tmp_path / "teacher", task, file)
    terms = {"logits": {"kind": "logits-mse"}}
    tree = task_settings([teacher], "elmo", task, file, distillation={"terms": terms})
    result = losses(tmp_path / "run", tree)
    assert set(result) == {task, "kl", "logits"}
