"""Losses that are sums over rows of logits, computed with their gradient for some at a time."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from zoo.nn.dtypes import at_least_float32
from zoo.nn.heads import VocabularyProjection
from zoo.nn.kernels.onednn_linear import linear
from zoo.nn.row_chunks import (
    Logits,
    all_logits,
    cache_chunks,
    chunks,
    logits_of_rows,
)

RowLoss = Callable[..., tuple[Tensor, Tensor]]


def sum_over_rows(loss: RowLoss, logits: Logits, *targets: Logits) -> Tensor:
    """Return sums over rows, (k,); the first has a gradient."""
    # loss: function of some rows of the logits and of each target. Returns k sums over these rows,
    # (k,), the loss first, and its gradient by the logits, (rows, classes)
    # logits: (n, classes), or the projection to them
    # targets: tensors without gradient, (n, ...), or projections to such
    # The gradient is computed in the forward pass, from the probabilities that the loss has anyway,
    # and is scaled in the backward pass. Then neither logits nor probabilities are kept, and logits
    # above ``LOGITS_AT_ONCE`` need not be computed a second time (as in Hsu et al. 2024,
    # arXiv:2410.10989). On a CPU, each operation on all logits reads and writes main memory; there,
    # the loss is computed for the rows that fit into the cache of a core. With 2,048 rows of 8,192
    # logits on one thread of an AMD EPYC, a divergence and its backward pass take less than half of
    # the time (``python -m benchmarks.kl_divergence``).
    #
    # ``torch.nn.functional.linear_cross_entropy`` of torch 2.13 does similar for one loss, but
    # returns no accuracy, and is left out of compiled graphs.
    if not isinstance(logits, Tensor):
        return _sum_over_projected_rows(loss, logits, targets)
    (needs_gradient,) = _need_gradients(logits)
    with torch.no_grad():
        dense_targets = [all_logits(target) for target in targets]
        sums, gradient = _sums_and_gradient(
            loss, logits, dense_targets, needs_gradient=needs_gradient
        )
    return _with_gradients(sums, [gradient], [logits], in_place=True)


def _sum_over_projected_rows(
    loss: RowLoss, projection: VocabularyProjection, targets: Sequence[Logits]
) -> Tensor:
    """Return ``sum_over_rows`` of a projection, never with more than ``LOGITS_AT_ONCE`` logits."""
    hidden, weight, bias, cap = projection
    need_gradients = _need_gradients(hidden, weight, bias)
    dtype = hidden.dtype
    device = hidden.device.type
    if dtype != torch.float64 and torch.is_autocast_enabled(device):  # as ``F.linear`` computes
        dtype = torch.get_autocast_dtype(device)
    with torch.no_grad():
        # Gradients are accumulated in the dtype of the parameters, also where products are in half
        # precision.
        by_hidden, by_weight, by_bias = (
            torch.zeros_like(tensor) if tensor is not None and is_needed else None
            for tensor, is_needed in zip((hidden, weight, bias), need_gradients, strict=True)
        )
        table = weight.to(dtype)
        shift = None if bias is None else bias.to(dtype)
        sums = []
        for rows in chunks(len(hidden), len(weight)):
            row_targets = [logits_of_rows(target, rows) for target in targets]
            with torch.autocast(hidden.device.type, enabled=False):
                inputs = hidden[rows].to(dtype)
                logits = linear(inputs, table, shift)
                logits = at_least_float32(projection.bounded(logits))
                part, errors = _sums_and_gradient(
                    loss, logits, row_targets, needs_gradient=any(need_gradients)
                )
                sums.append(part)
                if errors is None:
                    continue
                if cap is not None:  # The derivative of cap * tanh(z / cap) is 1 - tanh(z / cap)^2.
                    errors = errors * (1 - (logits / cap).square())
                if by_bias is not None:
                    by_bias += errors.sum(0)
                errors = errors.to(dtype)
                if by_hidden is not None:
                    by_hidden[rows] = linear(errors, table.T)
                if by_weight is not None:
                    by_weight += linear(errors.T, inputs.T)
    return _with_gradients(
        torch.stack(sums).sum(0), [by_hidden, by_weight, by_bias], [hidden, weight, bias]
    )


def _need_gradients(*tensors: Tensor | None) -> list[bool]:
    enabled = torch.is_grad_enabled()
    return [enabled and tensor is not None and tensor.requires_grad for tensor in tensors]


def _sums_and_gradient(
    loss: RowLoss, logits: Tensor, targets: Sequence[Tensor], *, needs_gradient: bool
) -> tuple[Tensor, Tensor | None]:
    """Return the sums over rows and their gradient, on a CPU for the rows that its cache holds."""
    parts = list(cache_chunks(*logits.shape))
    if len(parts) < 2 or logits.device.type != "cpu" or torch.compiler.is_compiling():
        sums, gradient = loss(logits, *targets)
        return sums, gradient.to(logits.dtype) if needs_gradient else None
    sums_of_parts = []
    full_gradient = torch.empty_like(logits) if needs_gradient else None
    for rows in parts:
        sums, gradient = loss(logits[rows], *(target[rows] for target in targets))
        sums_of_parts.append(sums)
        if full_gradient is not None:
            full_gradient[rows] = gradient
    return torch.stack(sums_of_parts).sum(0), full_gradient


def _with_gradients(
    sums: Tensor,
    gradients: Sequence[Tensor | None],
    inputs: Sequence[Tensor | None],
    *,
    in_place: bool = False,
) -> Tensor:
    """Return the sums as a function of the inputs, with the gradients of the first one."""
    return _WithGradients.apply(sums, in_place, *gradients, *inputs)  # type: ignore[no-any-return, no-untyped-call]


class _WithGradients(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, sums: Tensor, in_place: bool, *tensors: Tensor | None) -> Tensor:
        ctx.in_place = in_place
        ctx.save_for_backward(*tensors[: len(tensors) // 2])
        return sums.clone()

    @staticmethod
    def backward(ctx: Any, *by_sums: Tensor) -> tuple[Tensor | None, ...]:
        # A gradient by all logits is scaled in place, since a copy would be as large; autograd
        # refuses a second backward pass then
        scale = torch.Tensor.mul_ if ctx.in_place else torch.Tensor.mul
        scaled = [x if x is None else scale(x, by_sums[0][0]) for x in ctx.saved_tensors]
        return None, None, *[None] * len(scaled), *scaled
