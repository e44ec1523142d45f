"""Low-rank updates of a matrix in training."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from zoo.nn.kernels.onednn_linear import linear


def can_add_in_place(x: Tensor) -> bool:
    """Return whether ``add_low_rank`` takes the values here."""
    # x: (..., in)
    if torch.compiler.is_compiling() or torch.is_autocast_enabled(x.device.type):
        return False
    return torch.is_grad_enabled()


def add_low_rank(
    y: Tensor, x: Tensor, a: Sequence[Tensor], b: Sequence[Tensor], parts: Sequence[slice]
) -> Tensor:
    """Add x A^T B^T to the columns of each part of ``y``, in place."""
    # y: (..., out), needed by no gradient; x: (..., in); a: (rank, in) each; b: (columns, rank)
    # each. One product with all A, and sums in the products with B: no value of the width of ``y``
    # is read or written more often than that.
    return _AddLowRank.apply(y, x, torch.cat(list(a)), parts, *b)  # type: ignore[no-any-return, no-untyped-call]


class _AddLowRank(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, y: Tensor, x: Tensor, a: Tensor, parts: Sequence[slice], *b: Tensor
    ) -> Tensor:
        flat = y.view(-1, y.shape[-1])
        x = x.reshape(-1, x.shape[-1])
        inner = linear(x, a)
        for columns, left, right in zip(parts, _split(inner, b), b, strict=True):
            flat[:, columns].addmm_(left, right.T)
        ctx.parts = parts
        ctx.save_for_backward(x, a, inner, *b)
        ctx.mark_dirty(y)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        x, a, inner, *b = ctx.saved_tensors
        flat = gradients[0].reshape(-1, gradients[0].shape[-1])
        of_parts = [flat[:, columns] for columns in ctx.parts]
        of_b = [part.T @ left for part, left in zip(of_parts, _split(inner, b), strict=True)]
        of_inner = torch.cat([part @ right for part, right in zip(of_parts, b, strict=True)], -1)
        of_x = None
        if ctx.needs_input_grad[1]:
            of_x = linear(of_inner, a.T).view(*gradients[0].shape[:-1], -1)
        return gradients[0], of_x, linear(of_inner.T, x.T), None, *of_b


def _split(inner: Tensor, b: Sequence[Tensor]) -> tuple[Tensor, ...]:
    return inner.split([right.shape[1] for right in b], -1)  # type: ignore[no-any-return, no-untyped-call]
