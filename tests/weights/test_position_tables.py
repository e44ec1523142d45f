"""Grown tables of learned positions, worked by hand."""

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray

from zoo.weights.position_tables import grow_positions

# Two rows that no text has, as in RoBERTa, and three positions.
TABLE = np.array([[-1, -1], [-2, -2], [0, 8], [4, 4], [8, 0]], np.float32)


def test_repetition_starts_over_and_keeps_the_special_rows() -> None:
    grown = grow_positions(TABLE, 7, special_rows=2)
    expected = [[-1, -1], [-2, -2], [0, 8], [4, 4], [8, 0], [0, 8], [4, 4], [8, 0], [0, 8]]
    assert grown.tolist() == expected


def test_interpolation_keeps_both_ends_and_the_special_rows() -> None:
    grown = grow_positions(TABLE, 5, special_rows=2, method="interpolate")
    expected = [[-1, -1], [-2, -2], [0, 8], [2, 6], [4, 4], [6, 2], [8, 0]]
    assert grown.tolist() == expected


@pytest.mark.parametrize("method", ["repeat", "interpolate"])
@pytest.mark.parametrize("dtype", [np.float16, np.float64, ml_dtypes.bfloat16])
def test_a_table_keeps_its_dtype_and_one_of_the_same_length_its_bits(
    dtype: type, method: str
) -> None:
    values = np.random.default_rng(0).standard_normal((9, 4))
    table: NDArray[Any] = values.astype(dtype)
    grown = grow_positions(table, 9, method=method)
    assert grown.dtype == table.dtype
    assert grown.tobytes() == table.tobytes()
    assert grow_positions(table, 20, special_rows=3, method=method).shape == (23, 4)


@pytest.mark.parametrize(("count", "special_rows"), [(2, 2), (4, 5)])
def test_a_table_does_not_shrink_and_has_a_position(count: int, special_rows: int) -> None:
    with pytest.raises(ValueError, match=f"does not grow to {count}"):
        grow_positions(TABLE, count, special_rows=special_rows)
