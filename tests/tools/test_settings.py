"""The page of all settings."""

import re

import msgspec
import pytest

from tools.settings import PAGE, kind, meanings, page
from zoo.families.recipe import OptimizerConfig
from zoo.training.config.finetune import FineTuneConfig
from zoo.training.config.schema import TrainConfig

TEXT = PAGE.read_text("utf-8")


def test_the_page_is_current() -> None:
    assert page() == TEXT, "run python -m tools.settings"


def test_every_setting_of_a_file_is_on_the_page() -> None:
    named = set(re.findall(r"^\| `([\w.]+)` \|", TEXT, re.MULTILINE))
    wanted = {*TrainConfig.__struct_fields__, *FineTuneConfig.__struct_fields__}
    wanted |= {f"optimizer.{name}" for name in OptimizerConfig.__struct_fields__}
    assert sorted(wanted - named) == []


def test_no_meaning_is_empty() -> None:
    rows = [line.split(" | ") for line in TEXT.splitlines() if line.startswith("| `")]
    assert [row[0] for row in rows if len(row[-1].strip(" |")) < 5] == []


class Documented(msgspec.Struct):
    """A struct.

    Attributes:
        first: of a docstring,
            in two lines.

    More text: of no field.
    """

    first: int = 1
    second: str | None = None  # next to the field
    # above the field,
    # in two lines
    third: tuple[str, ...] = ()


class Derived(Documented):
    """Another struct."""

    second: str | None = "a"  # replaced


@pytest.mark.parametrize(
    ("struct", "expected"),
    [
        (
            Documented,
            ["of a docstring, in two lines", "next to the field", "above the field, in two lines"],
        ),
        (Derived, ["of a docstring, in two lines", "replaced", "above the field, in two lines"]),
    ],
)
def test_meanings_are_docstrings_and_comments(
    struct: type[msgspec.Struct], expected: list[str]
) -> None:
    assert [meanings(struct)[name] for name in ("first", "second", "third")] == expected


@pytest.mark.parametrize(
    ("hint", "expected"),
    [
        (int | None, "integer or null"),
        (tuple[str, ...], "list of text"),
        (dict[str, float], "table"),
        (OptimizerConfig, "table"),
    ],
)
def test_types_are_written_for_people(hint: object, expected: str) -> None:
    assert kind(hint) == expected
