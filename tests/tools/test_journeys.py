"""The journeys of new users: how outcomes are judged. The journeys themselves take minutes."""

from pathlib import Path

import pytest

from tools.journeys import Step, problems, problems_on_terminal


@pytest.mark.parametrize(
    ("step", "code", "output", "wrong"),
    [
        (Step("x", "four rows"), 0, "wrote four\nrows", []),
        (Step("x", "four rows", 2), 0, "four rows", ["exit code 0 instead of 2"]),
        (Step("x", "four"), 0, "five", ["no match of 'four'"]),
        (Step("x"), 0, "Traceback (most recent call last)", ["a traceback"]),
        (Step("x", files=("out",)), 0, "", ["out is missing"]),
    ],
)
def test_an_outcome_that_differs_is_named(
    step: Step, code: int, output: str, wrong: list[str], tmp_path: Path
) -> None:
    differences = list(problems(step, code, output, tmp_path))
    assert [text.partition(":")[0] for text in differences] == wrong


def test_a_dumb_terminal_of_80_columns_is_not_exceeded() -> None:
    assert list(problems_on_terminal("a" * 80 + "\n{" + "a" * 90)) == []
    assert list(problems_on_terminal("\x1b[1mbold")) == ["escape codes"]
    assert "a line of 81 columns" in next(iter(problems_on_terminal("a" * 81)))
