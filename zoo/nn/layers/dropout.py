"""Dropout with random numbers that are drawn four at a time on CPUs.

There, torch draws one number for each value, in one thread. Here, each 64-bit number of the same
generator decides four values, so that its state still determines what is dropped.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

LEVELS = 1 << 16  # of a probability
SMALLEST = 2**-8  # probability that is rounded to a level by less than one part in 500


def dropout(x: Tensor, p: float, *, training: bool = True) -> Tensor:
    """Set values to zero with a probability and divide the others by that of keeping one.

    Args:
        x: (...), floating point.
        p: the probability; on a CPU it is rounded to a multiple of 2^-16, and the others are
            divided by what is left of 1, so that the mean stays.
        training: whether anything is dropped.
    """
    if not training or not p:
        return x
    if x.device.type != "cpu" or not SMALLEST <= p < 1 or torch.compiler.is_compiling():
        return F.dropout(x, p)
    level = round(p * LEVELS)
    return _Dropout.apply(x, keep_mask(x, level), LEVELS / (LEVELS - level))  # type: ignore[no-any-return, no-untyped-call]


def keep_mask(x: Tensor, level: int) -> Tensor:
    """Return a random mask of the shape of ``x``, False with a probability of level / 65,536."""
    numbers = torch.empty((x.numel() + 3) // 4, dtype=torch.int64).random_(-(2**63), None)
    draws = numbers.view(torch.int16)[: x.numel()].view(x.shape)
    return draws >= level - LEVELS // 2


class _Dropout(torch.autograd.Function):
    """Product with a mask and a factor, which keeps a byte per value for the gradient."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, mask: Tensor, factor: float) -> Tensor:
        ctx.save_for_backward(mask)
        ctx.factor = factor
        return x.mul(mask).mul_(factor)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        (mask,) = ctx.saved_tensors
        return torch.ops.aten.native_dropout_backward(gradients[0], mask, ctx.factor), None, None


class Dropout(nn.Dropout):
    """``nn.Dropout`` by ``dropout``."""

    def forward(self, x: Tensor) -> Tensor:
        """Drop values of (...)."""
        return dropout(x, self.p, training=self.training)
