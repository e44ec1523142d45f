"""Settings that follow from a teacher, a student and a recipe."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.distillation.making import distill, make_setup, pretrained, settings
from zoo.checkpoint import load_checkpoint
from zoo.distillation.runs import DISTILL
from zoo.errors import UsageError


@pytest.fixture(scope="module")
def teacher() -> Path:
    return pretrained("bert")


def relation_heads(tree: dict[str, Any]) -> int | None:
    config: Any = DISTILL.build_config(tree, {})
    heads: int | None = config.distillation.terms["relations"].relation_heads
    return heads


def test_relation_heads_of_a_recipe_divide_the_widths_of_both_models(
    teacher: Path, tmp_path: Path
) -> None:
    """48, of the paper, divides neither 128, the width of size tiny, nor 80."""
    recipe = {"recipe": "minilmv2"}
    tree = settings(teacher, "tiny", distillation=recipe)
    assert relation_heads(tree) == 32  # of the divisors of 128
    make_setup(tree)
    narrow = {"hidden_size": 80, "num_heads": 5}
    assert relation_heads(settings(teacher, "bert", distillation=recipe, student=narrow)) == 16
    file = tmp_path / "mine.yaml"
    file.write_text(yaml.safe_dump({"terms": {"relations": {"kind": "relations"}}}))
    assert relation_heads(settings(teacher, "tiny", distillation={"recipe": str(file)})) is None


@pytest.mark.parametrize(
    ("changes", "student", "message"),
    [
        ({"relation_heads": 48}, {}, "is 48, .* width 128; --set .* takes a divisor of 128"),
        ({}, {"num_heads": 4}, "has 4, its teacher 2; --set .*=N splits both"),
    ],
)
def test_relation_heads_of_a_user_are_named(
    teacher: Path, changes: Any, student: Any, message: str
) -> None:
    terms = {"values": {"kind": "relations", **changes}}
    tree = settings(teacher, "bert", student=student, distillation={"terms": terms})
    with pytest.raises(UsageError, match=message) as error:
        make_setup(tree)
    assert "--set distillation.terms.values.relation_heads=N" in error.value.hint


@pytest.mark.parametrize(
    ("student", "new_modules"),
    [("bert", []), ("electra", ["head"])],  # a discriminator has no head that predicts tokens
)
def test_a_pretrained_student_takes_the_objective_that_both_models_support(
    student: str, new_modules: list[str], tmp_path: Path
) -> None:
    """The families' own are masked-lm+next-sentence and replaced-token-detection."""
    teacher = pretrained("bert", objective="masked-lm")
    changes = {"max_steps": 2, "save_steps": 2, "init_from": {"new_modules": new_modules}}
    tree = settings(teacher, str(pretrained(student)), **changes)
    run = distill(tmp_path / "run", tree)
    assert yaml.safe_load((run / "config.yaml").read_text())["objective"] == "masked-lm"
    assert load_checkpoint(run / "model").head_name == "masked-lm"
