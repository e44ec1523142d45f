"""Dropout with random numbers that are drawn four at a time on CPUs."""

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

LEVELS = 1 << 16  # of a probability
SMALLEST = 2**-8  # probability that is rounded to a level by less than one part in 500


def dropout(x: Tensor, p: float, *, training: bool = True) -> Tensor:
    """Set values to zero with probability ``p``, and divide the rest by 1 - ``p``."""
    # On a CPU, ``p`` is rounded to a multiple of 2^-16; the factor follows, so that the mean stays.
    # There, torch draws one number for each value, in one thread. Here, each 64-bit number of the
    # same generator decides four values, so that its state still determines what is dropped.
    if not training or not p:
        return x
    if x.device.type != "cpu" or not has_level(p) or torch.compiler.is_compiling():
        return F.dropout(x, p)
    return _Dropout.apply(x, keep_mask(x, p), keep_factor(p))  # type: ignore[no-any-return, no-untyped-call]


def has_level(p: float) -> bool:
    """Return whether numbers of 16 bits decide a probability well enough."""
    return SMALLEST <= p < 1


def keep_factor(p: float) -> float:
    """Return what is divided by the probability of keeping a value, as a factor."""
    return LEVELS / (LEVELS - round(p * LEVELS))


def keep_mask(x: Tensor, p: float) -> Tensor:
    """Return a random mask of the shape of ``x``, False with a probability, see ``has_level``."""
    return _draws(x) >= _threshold(p)


def mark_dropped(x: Tensor, p: float) -> Tensor:
    """Make values negative, in place, where ``keep_mask`` is False."""
    return x.copysign_(_draws(x).float().sub_(_threshold(p) - 0.5))


def _draws(x: Tensor) -> Tensor:
    """Return a random number for each value of ``x``, int16."""
    numbers = torch.empty((x.numel() + 3) // 4, dtype=torch.int64).random_(-(2**63), None)
    return numbers.view(torch.int16)[: x.numel()].view(x.shape)


def _threshold(p: float) -> int:
    """Return the smallest of the random numbers with which a value is kept."""
    return round(p * LEVELS) - LEVELS // 2


class _Dropout(torch.autograd.Function):
    """Product with a mask and a factor, which keeps a byte per value for the gradient."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, mask: Tensor, factor: float) -> Tensor:
        ctx.save_for_backward(mask)
        ctx.factor = factor
        return _masked(x, mask, factor)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        (mask,) = ctx.saved_tensors
        return _masked(gradients[0], mask, ctx.factor), None, None


def _masked(x: Tensor, mask: Tensor, factor: float) -> Tensor:
    """Return ``x`` times a factor where a mask is True, and 0 elsewhere."""
    return x.mul(mask).mul_(factor)
