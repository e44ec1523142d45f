"""Arrays of numbers in JSON."""

import json

import msgspec
import numpy as np
import pytest

from zoo.serving.numbers import json_numbers


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_numbers_are_read_as_the_same_bits(dtype: str) -> None:
    size = np.dtype(dtype).itemsize
    drawn = np.frombuffer(np.random.default_rng(0).bytes(100_000 * size), dtype)
    array = drawn[np.isfinite(drawn)]  # of every magnitude, numbers below the normal ones included
    numbers = json.loads(msgspec.json.encode(json_numbers(array)))
    assert (np.array(numbers).astype(dtype) == array).all()


def test_a_float32_has_few_digits() -> None:
    array = np.array([[0.1, -2.5], [1 / 3, 1e-7]], np.float32)
    assert (
        msgspec.json.encode({"a": json_numbers(array)}) == b'{"a":[[0.1,-2.5],[0.33333334,1e-7]]}'
    )


def test_rows_of_larger_arrays_and_other_types() -> None:
    array = np.arange(12, dtype=np.float32).reshape(3, 4)
    assert json.loads(msgspec.json.encode(json_numbers(array[:, 1:3]))) == array[:, 1:3].tolist()
    assert json.loads(msgspec.json.encode(json_numbers(np.array([1, -2], np.int8)))) == [1, -2]
    assert json.loads(msgspec.json.encode(json_numbers(array.astype(np.float16)))) == array.tolist()
