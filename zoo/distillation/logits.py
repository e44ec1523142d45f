"""Logits of models with many classes: softened, or the largest ones of each row alone."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import Tensor
from torch.nn import functional as F

from zoo.nn.kernels.row_chunks import Logits, all_logits, chunks, logits_of_rows

# above it, probabilities differ by so little that float32 rounds the differences to a few digits
HIGHEST_FLOAT32_TEMPERATURE = 10.0


@dataclass(frozen=True)
class TopLogits:
    """The k largest logits of each of n rows."""

    values: Tensor  # (n, k), float32
    classes: Tensor  # (n, k), int64
    # temperature -> log of the sum of exp(z / temperature) over all other logits z, (n,), float32
    others: Mapping[float, Tensor]
    columns: int  # number of classes

    def lost_probability(self, temperature: float) -> Tensor:
        """Return the probability of the other classes, (n,)."""
        inside = (self.values / temperature).logsumexp(-1)
        return (self.others[temperature] - inside).sigmoid()


Target: TypeAlias = Logits | TopLogits


def num_classes(logits: Target) -> int:
    """Return the number of classes of a model."""
    if isinstance(logits, TopLogits):
        return logits.columns
    return logits.shape[-1] if isinstance(logits, Tensor) else len(logits.weight)


def dense(logits: Logits, columns: int) -> Tensor:
    """Return the first logits of each row, (n, columns), at least float32."""
    values = all_logits(logits)
    return as_loss(values[..., :columns], values)


def as_loss(values: Tensor, logits: Tensor) -> Tensor:
    """Return values in the dtype of a loss of logits, at least float32."""
    return values.to(torch.promote_types(logits.dtype, torch.float32))


def softened(logits: Tensor, temperature: float) -> Tensor:
    """Return logits divided by a temperature, finite also for minus infinity.

    They are float64 above ``HIGHEST_FLOAT32_TEMPERATURE``: a divergence is proportional to 1 / T²,
    and the rounding errors of log-probabilities do not depend on T.
    """
    values = logits.double() if temperature > HIGHEST_FLOAT32_TEMPERATURE else logits
    return (values / temperature).clamp(min=lowest(values.dtype))


def lowest(dtype: torch.dtype) -> float:
    """Return a number whose exponential is 0, in place of minus infinity.

    A quarter of the lowest finite number: its difference from the largest logit of a row and from
    another log-probability remains finite.
    """
    return torch.finfo(dtype).min / 4


def pad_columns(values: Tensor, columns: int) -> Tensor:
    """Return values followed by zeros, (n, columns), for classes that do not count."""
    missing = columns - values.shape[-1]
    return F.pad(values, (0, missing)) if missing else values  # without a copy


def top_logits(
    logits: Logits, k: int, *, columns: int, temperatures: tuple[float, ...]
) -> TopLogits:
    """Return the largest logits of each row.

    Args:
        logits: (n, classes), or the projection to them.
    """
    rows = len(logits if isinstance(logits, Tensor) else logits.hidden)
    values, classes = [], []
    others: dict[float, list[Tensor]] = {t: [] for t in temperatures}
    for part in chunks(rows, num_classes(logits)):  # all logits of all rows may not fit in memory
        of_rows = dense(logits_of_rows(logits, part), columns)
        top = of_rows.topk(k)
        values.append(top.values)
        classes.append(top.indices)
        rest = of_rows.scatter(-1, top.indices, -math.inf)
        for t in temperatures:
            others[t].append(softened(rest, t).logsumexp(-1).to(of_rows.dtype))
    sums = {t: torch.cat(parts) for t, parts in others.items()}
    return TopLogits(torch.cat(values), torch.cat(classes), sums, columns)
