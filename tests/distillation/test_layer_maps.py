"""Layer maps against those of papers and released code."""

from typing import Any

import pytest

from zoo.distillation.layer_maps import resolve_layers
from zoo.errors import UsageError


@pytest.mark.parametrize(
    ("layers", "student", "teacher", "expected"),
    [
        # Sanh et al. 2019, scripts/extract_distilbert.py
        ("spread", 6, 12, [0, 2, 4, 7, 9, 11]),
        # Shleifer and Rush 2020, the copied layers of 12-to-3 students
        ("spread", 3, 12, [0, 6, 11]),
        # Jiao et al. 2020, g(m) = 3 m, counted from 1
        ("uniform", 4, 12, [2, 5, 8, 11]),
        # Sun et al. 2019, PKD-Skip: layers 2, 4, 6, 8, 10, counted from 1
        ("skip", 6, 12, [1, 3, 5, 7, 9]),
        ("first", 3, 12, [0, 1, 2]),
        ("spread", 1, 2, [0]),
    ],
)
def test_named_maps(layers: Any, student: int, teacher: int, expected: list[int]) -> None:
    assert resolve_layers(layers, student, teacher) == list(enumerate(expected))


def test_pairs_count_from_the_end_too() -> None:
    assert resolve_layers(((0, -1), (-1, 3)), 4, 12) == [(0, 11), (3, 3)]
    assert resolve_layers("last", 4, 12) == [(3, 11)]


@pytest.mark.parametrize(
    ("layers", "message"),
    [
        (((0, 12),), "the teacher has no layer 12"),
        (((4, 0),), "the student has no layer 4"),
        ((), "compares no layer"),
    ],
)
def test_a_layer_out_of_range_is_refused(layers: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        resolve_layers(layers, 4, 12)


def test_a_deeper_student_needs_pairs() -> None:
    with pytest.raises(UsageError, match="the student has 6 layers, its teacher 4"):
        resolve_layers("uniform", 6, 4)
