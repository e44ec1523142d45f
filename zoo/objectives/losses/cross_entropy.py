"""Cross-entropy over a vocabulary, which never holds more than some of the logits.

The logits of n positions and a vocabulary of V tokens are n V numbers, and as many again for their
probabilities and their gradient: 6.6 GB each, in float32, for 32,768 positions and 50,257
tokens. Above ``LOGITS_AT_ONCE``, they are computed for some positions at a time, and again in
the backward pass, which adds a third to the work of the output layer. A function of the shapes
alone decides, so that a run that is resumed takes the same path. On a CPU, the loss of fewer logits
is computed for the rows that fit into its cache; see ``row_sums``.

``torch.nn.functional.linear_cross_entropy`` of torch 2.13 does similar, but is not in the earlier
releases that are supported, returns no accuracy, and is left out of compiled graphs.
"""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from zoo.nn.heads import VocabularyProjection
from zoo.objectives.losses.row_sums import sum_over_rows

LOGITS_AT_ONCE = 1 << 26  # 256 MB in float32
IGNORED = -100  # label of a position that does not count, as in ``torch.nn.functional``


def fits_at_once(positions: int, vocabulary: int) -> bool:
    """Return whether all logits of a batch are held at once."""
    return positions * vocabulary <= LOGITS_AT_ONCE


def chunks(positions: int, vocabulary: int) -> Iterator[slice]:
    """Yield stretches of positions, each of which has at most ``LOGITS_AT_ONCE`` logits."""
    size = max(1, LOGITS_AT_ONCE // vocabulary)
    for start in range(0, positions, size):
        yield slice(start, start + size)


def chunked_logits(projection: VocabularyProjection) -> Iterator[tuple[slice, Tensor]]:
    """Yield stretches of positions and their logits, (positions, vocabulary), float32."""
    for rows in chunks(len(projection.hidden), len(projection.weight)):
        yield rows, projection._replace(hidden=projection.hidden[rows]).logits().float()


def summed_cross_entropy(
    logits: Tensor | VocabularyProjection, labels: Tensor
) -> tuple[Tensor, Tensor]:
    """Compute the sum of cross-entropies, and the number of labels with the largest logit.

    Args:
        logits: (n, classes), float32; or the projection to them, for more of them than are held at
            once.
        labels: (n,), int64; ``IGNORED`` counts for neither result.

    Returns:
        The sum, a scalar of the logits' dtype, at least float32, with gradient; and the number of
        correct predictions, int64.
    """
    if isinstance(logits, VocabularyProjection):
        hidden, weight, bias = logits
        total, correct = _ChunkedCrossEntropy.apply(  # type: ignore[no-untyped-call]
            hidden, weight, bias, labels, _matmul_dtype(hidden)
        )
        return total, correct
    correct = (logits.detach().argmax(-1) == labels).sum()
    if logits.device.type == "cpu" and not torch.compiler.is_compiling():
        return sum_over_rows(_cross_entropy_of_rows, logits, labels), correct
    return F.cross_entropy(logits, labels, reduction="sum"), correct


def _cross_entropy_of_rows(logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Return the sum of cross-entropies, and its gradient by the logits."""
    predicted = logits.log_softmax(-1)
    total = F.nll_loss(predicted, labels, reduction="sum", ignore_index=IGNORED)
    return total, _errors(predicted.exp_(), labels, total.new_ones(()))


def _matmul_dtype(x: Tensor) -> torch.dtype:
    """Return the dtype in which ``F.linear`` computes here: that of autocast, if it is enabled."""
    device = x.device.type
    if x.dtype != torch.float64 and torch.is_autocast_enabled(device):
        return torch.get_autocast_dtype(device)
    return x.dtype


def _logits(hidden: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    logits = F.linear(hidden, weight, bias)
    return logits.to(torch.promote_types(logits.dtype, torch.float32))


class _ChunkedCrossEntropy(torch.autograd.Function):
    """Sum of cross-entropies and number of correct predictions, some positions at a time."""

    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        labels: Tensor,
        dtype: torch.dtype,
    ) -> tuple[Tensor, Tensor]:
        """Keep the arguments alone; ``dtype`` is that of the products."""
        ctx.save_for_backward(hidden, weight, bias, labels)
        ctx.dtype = dtype
        sums, correct = [], []
        with torch.autocast(hidden.device.type, enabled=False):
            table, shift = weight.to(dtype), None if bias is None else bias.to(dtype)
            for rows in chunks(len(hidden), len(weight)):
                logits = _logits(hidden[rows].to(dtype), table, shift)
                sums.append(F.cross_entropy(logits, labels[rows], reduction="sum"))
                correct.append((logits.argmax(-1) == labels[rows]).sum())
        counts = torch.stack(correct).sum()
        ctx.mark_non_differentiable(counts)
        return torch.stack(sums).sum(), counts

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        """Compute the logits again, and accumulate the gradients of weight and bias.

        Those are accumulated in the parameters' dtype, also where products are in half precision.
        """
        hidden, weight, bias, labels = ctx.saved_tensors
        need_hidden, need_weight, need_bias = ctx.needs_input_grad[:3]
        grad_hidden = torch.empty_like(hidden) if need_hidden else None
        grad_weight = torch.zeros_like(weight) if need_weight else None
        grad_bias = torch.zeros_like(bias) if need_bias else None
        table, shift = weight.to(ctx.dtype), None if bias is None else bias.to(ctx.dtype)
        for rows in chunks(len(hidden), len(weight)):
            inputs = hidden[rows].to(ctx.dtype)
            probabilities = _logits(inputs, table, shift).softmax(-1)
            errors = _errors(probabilities, labels[rows], gradients[0])
            if grad_bias is not None:
                grad_bias += errors.sum(0)
            errors = errors.to(ctx.dtype)
            if grad_hidden is not None:
                grad_hidden[rows] = errors @ table
            if grad_weight is not None:
                grad_weight += errors.t() @ inputs
        return grad_hidden, grad_weight, grad_bias, None, None


def _errors(probabilities: Tensor, labels: Tensor, gradient: Tensor) -> Tensor:
    """Return the gradient of the logits: probabilities, minus 1 for the label, times a factor.

    Probabilities are overwritten.
    """
    classes = labels.clamp(min=0)[:, None]
    probabilities.scatter_(1, classes, probabilities.gather(1, classes) - 1)
    return probabilities.mul_(((labels != IGNORED) * gradient)[:, None])
