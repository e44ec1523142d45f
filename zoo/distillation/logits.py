"""Logits of models with many classes: softened, or only the largest ones of each row."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import Tensor
from torch.nn import functional as F

from zoo.nn.row_chunks import Logits, all_logits, chunks, logits_of_rows, select_rows

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

    def select(self, rows: Tensor) -> "TopLogits":
        """Return some rows, by their indices."""
        others = {temperature: sums[rows] for temperature, sums in self.others.items()}
        return TopLogits(self.values[rows], self.classes[rows], others, self.columns)


Target: TypeAlias = Logits | TopLogits


def select_targets(target: Target, rows: Tensor) -> Target:
    """Return some rows of logits, by their indices."""
    if isinstance(target, TopLogits):
        return target.select(rows)
    return select_rows(target, rows)


def num_classes(logits: Target) -> int:
    """Return the number of classes of a model."""
    if isinstance(logits, TopLogits):
        return logits.columns
    return logits.shape[-1] if isinstance(logits, Tensor) else len(logits.weight)


def dense(logits: Logits, columns: int) -> Tensor:
    """Return the first ``columns`` logits of each row, (n, columns), at least float32."""
    values = all_logits(logits)
    return as_loss(values[..., :columns], values)


def as_loss(values: Tensor, logits: Tensor) -> Tensor:
    """Convert values to the dtype in which a loss of these logits is computed, at least float32."""
    return values.to(torch.promote_types(logits.dtype, torch.float32))


def softened(logits: Tensor, temperature: float) -> Tensor:
    """Divide logits by a temperature; minus infinity becomes a finite number."""
    # a divergence is proportional to 1 / T², but the rounding errors of log-probabilities are not
    values = logits.double() if temperature > HIGHEST_FLOAT32_TEMPERATURE else logits
    return (values / temperature).clamp(min=lowest(values.dtype))


def lowest(dtype: torch.dtype) -> float:
    """Return a finite number whose exponential is 0, to replace minus infinity."""
    # a quarter of the minimum, so that differences from logits and log-probabilities stay finite
    return torch.finfo(dtype).min / 4


def pad_columns(values: Tensor, columns: int) -> Tensor:
    """Append zeros for classes that do not count, (n, columns)."""
    missing = columns - values.shape[-1]
    return F.pad(values, (0, missing)) if missing else values  # without a copy


def top_logits(
    logits: Logits, k: int, *, columns: int, temperatures: tuple[float, ...]
) -> TopLogits:
    """Return the ``k`` largest logits of each row among the first ``columns`` classes."""
    # The remaining logits are summed at each of ``temperatures``.
    rows = len(logits if isinstance(logits, Tensor) else logits.hidden)
    values = []
    classes = []
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
