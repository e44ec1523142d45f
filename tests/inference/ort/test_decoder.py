"""Rows that ONNX Runtime selects are those that NumPy selects."""

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from onnxruntime import OrtValue

from zoo.inference.ort.decoder import RowSelector


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize("shape", [(3, 2, 5, 4), (3, 0, 2), (3,)], ids=str)
def test_rows_are_those_of_numpy(shape: tuple[int, ...], dtype: type) -> None:
    array: NDArray[Any] = np.random.default_rng(0).normal(size=shape).astype(dtype)
    rows = np.array([2, 0, 2, 1])
    selector = RowSelector()
    selected = selector.select({"keys": OrtValue.ortvalue_from_numpy(array)}, rows)
    np.testing.assert_array_equal(selected["keys"].numpy(), array[rows])
    assert selected["keys"].numpy().dtype == dtype


def test_values_of_several_types_are_selected() -> None:
    arrays = {"a": np.arange(4, dtype=np.float32), "b": np.arange(8, dtype=np.float16)}
    values = {name: OrtValue.ortvalue_from_numpy(array) for name, array in arrays.items()}
    selected = RowSelector().select(values, np.array([3, 3]))
    assert {name: value.numpy().tolist() for name, value in selected.items()} == {
        "a": [3.0, 3.0],
        "b": [3.0, 3.0],
    }
