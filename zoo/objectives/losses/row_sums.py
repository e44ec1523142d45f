"""Losses that are sums over rows of logits, computed for some rows at a time with their gradient.

The gradient is computed in the forward pass, from the probabilities that the loss has anyway, and
is scaled in the backward pass. Then neither logits nor probabilities are kept, and logits above
``LOGITS_AT_ONCE`` need not be computed a second time (as in Hsu et al. 2024,
arXiv:2410.10989). On a CPU, each operation on all logits reads and writes main memory;
there, the loss is computed for the rows that fit into the cache of a core. With 2,048 rows of 8,192
logits on one thread of an AMD EPYC, a divergence and its backward pass take less than half of the
time (``python -m benchmarks.kl_divergence``).

``torch.nn.functional.linear_cross_entropy`` of torch 2.13 does similar for one loss, but returns no
accuracy, and is left out of compiled graphs.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from zoo.objectives.losses.row_chunks import (
    Logits,
    all_logits,
    cache_chunks,
    chunks,
    logits_of_rows,
)

RowLoss = Callable[..., tuple[Tensor, Tensor]]


def sum_over_rows(loss: RowLoss, logits: Logits, *targets: Logits) -> Tensor:
    """Return sums over rows, (k,); the first has a gradient.

    Args:
        loss: function of some rows of the logits and of each target. Returns k sums over these
            rows, (k,), the loss first, and its gradient by the logits, (rows,
            classes).
        logits: (n, classes), or the projection to them.
        targets: tensors without gradient, (n, ...), or projections to such.
    """
    if isinstance(logits, Tensor):
        with torch.no_grad():
            dense_targets = [all_logits(target) for target in targets]
        needs_gradient = torch.is_grad_enabled() and logits.requires_grad
        sums: Tensor = _SumOverRows.apply(loss, needs_gradient, logits, *dense_targets)  # type: ignore[no-untyped-call]
        return sums
    needed = [
        torch.is_grad_enabled() and tensor is not None and tensor.requires_grad for tensor in logits
    ]
    dtype = _matmul_dtype(logits.hidden)
    return _SumOverProjectedRows.apply(loss, targets, needed, dtype, *logits)  # type: ignore[no-any-return, no-untyped-call]


def _matmul_dtype(x: Tensor) -> torch.dtype:
    """Return the dtype in which ``F.linear`` computes here: autocast's, if it is enabled."""
    device = x.device.type
    if x.dtype != torch.float64 and torch.is_autocast_enabled(device):
        return torch.get_autocast_dtype(device)
    return x.dtype


def _sums_and_gradient(
    loss: RowLoss, logits: Tensor, targets: Sequence[Tensor], *, needs_gradient: bool
) -> tuple[Tensor, Tensor | None]:
    """Return the sums over rows and their gradient, on a CPU for the rows that its cache holds."""
    parts = list(cache_chunks(*logits.shape))
    if len(parts) < 2 or logits.device.type != "cpu" or torch.compiler.is_compiling():
        sums, gradient = loss(logits, *targets)
        return sums, gradient.to(logits.dtype) if needs_gradient else None
    sums_of_parts, whole = [], torch.empty_like(logits) if needs_gradient else None
    for rows in parts:
        sums, gradient = loss(logits[rows], *(target[rows] for target in targets))
        sums_of_parts.append(sums)
        if whole is not None:
            whole[rows] = gradient
    return torch.stack(sums_of_parts).sum(0), whole


class _SumOverRows(torch.autograd.Function):
    """``sum_over_rows`` of logits."""

    @staticmethod
    def forward(
        ctx: Any, loss: RowLoss, needs_gradient: bool, logits: Tensor, *targets: Tensor
    ) -> Tensor:
        """Compute the sums, and keep the gradient of the first by the logits."""
        sums, gradient = _sums_and_gradient(loss, logits, targets, needs_gradient=needs_gradient)
        ctx.save_for_backward(gradient)
        ctx.targets = len(targets)
        return sums

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        """Return the gradient by the logits, scaled by the loss's."""
        # It is scaled in place, since a copy would be as large as all logits; autograd refuses a
        # second backward pass then
        (by_logits,) = ctx.saved_tensors
        return None, None, by_logits.mul_(gradients[0][0]), *[None] * ctx.targets


class _SumOverProjectedRows(torch.autograd.Function):
    """``sum_over_rows`` of a projection, never with more than ``LOGITS_AT_ONCE`` logits."""

    @staticmethod
    def forward(
        ctx: Any,
        loss: RowLoss,
        targets: Sequence[Logits],
        needed: Sequence[bool],
        dtype: torch.dtype,
        hidden: Tensor,
        weight: Tensor,
        bias: Tensor | None,
    ) -> Tensor:
        """Compute the sums, and keep the gradients of the first by those that are ``needed``.

        Products are in ``dtype``. Gradients are accumulated in the dtype of the parameters, also
        where products are in half precision.
        """
        by_hidden, by_weight, by_bias = (
            torch.zeros_like(tensor) if tensor is not None and is_needed else None
            for tensor, is_needed in zip((hidden, weight, bias), needed, strict=True)
        )
        table, shift = weight.to(dtype), None if bias is None else bias.to(dtype)
        sums = []
        for rows in chunks(len(hidden), len(weight)):
            row_targets = [logits_of_rows(target, rows) for target in targets]
            with torch.autocast(hidden.device.type, enabled=False):
                inputs = hidden[rows].to(dtype)
                logits = F.linear(inputs, table, shift)
                logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
                part, errors = _sums_and_gradient(
                    loss, logits, row_targets, needs_gradient=any(needed)
                )
                sums.append(part)
                if errors is None:
                    continue
                if by_bias is not None:
                    by_bias += errors.sum(0)
                errors = errors.to(dtype)
                if by_hidden is not None:
                    by_hidden[rows] = errors @ table
                if by_weight is not None:
                    by_weight += errors.t() @ inputs
        ctx.save_for_backward(by_hidden, by_weight, by_bias)
        return torch.stack(sums).sum(0)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        """Return the gradients, scaled by the loss's."""
        scale = gradients[0][0]
        scaled = [None if tensor is None else tensor * scale for tensor in ctx.saved_tensors]
        return None, None, None, None, *scaled
