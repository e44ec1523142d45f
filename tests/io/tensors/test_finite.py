"""Tensors of torch and numpy that hold NaN or infinity."""

from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch

from zoo.errors import VerificationError
from zoo.io.tensors.finite import is_finite, require_finite

VALUES: list[Any] = [
    np.array([1.0, 2.0], np.float32),
    np.array([1.0, 2.0], np.float16),
    np.array([1.0, 2.0], ml_dtypes.bfloat16),
    np.array([1, 2], np.int64),
    np.array([], np.float32),
    torch.tensor([1.0, 2.0]),
    torch.tensor([1.0, 2.0], dtype=torch.bfloat16),
    torch.tensor([1, 2]),
]


@pytest.mark.parametrize("values", VALUES, ids=lambda values: str(values.dtype))
def test_numbers(values: Any) -> None:
    assert is_finite(values)
    require_finite({"weight": values}, "model", "hint")


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("values", VALUES, ids=lambda values: str(values.dtype))
def test_what_is_not_a_number_is_named(values: Any, value: float) -> None:
    if len(values) == 0 or "int" in str(values.dtype):
        pytest.skip("holds numbers only")
    broken = values.clone() if isinstance(values, torch.Tensor) else values.copy()
    broken[1] = value
    with pytest.raises(VerificationError, match="model: b holds NaN or infinity; hint"):
        require_finite({"a": values, "b": broken}, "model", "hint")
