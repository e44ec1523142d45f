"""The comparison of a kernel with a reference."""

from collections.abc import Sequence

import torch
from torch import Tensor


def assert_equal_with_gradients(
    value: Tensor, expected: Tensor, inputs: Sequence[Tensor], bound: float
) -> None:
    """Compare outputs, and the gradients of inputs, by their largest difference."""
    weight = torch.randn_like(expected)
    gradients = torch.autograd.grad(value, inputs, weight)
    references = torch.autograd.grad(expected, inputs, weight)
    pairs = zip((value, *gradients), (expected, *references), strict=True)
    for result, reference in pairs:
        torch.testing.assert_close(result, reference, atol=bound, rtol=0)
