"""Relative positions: which row of the table a difference has, and the table as heads see it."""

import math
from collections.abc import Sequence
from typing import NamedTuple

from torch import Tensor

from zoo_deberta.config import DebertaConfig


def bucket(difference: int, buckets: int, farthest: int) -> int:
    """Return the bucket of a difference of positions: near ones alone, far ones together.

    Up to half of the buckets in each direction hold one difference each; the others grow with
    the logarithm, and the last one ends at ``farthest``.
    """
    middle = buckets // 2
    if abs(difference) <= middle:
        return difference
    part = math.log(abs(difference) / middle) / math.log((farthest - 1) / middle)
    return (math.ceil(part * (middle - 1)) + middle) * (1 if difference > 0 else -1)


def rows_by_difference(config: DebertaConfig) -> Sequence[int]:
    """Return the table's row for each difference from ``max_positions - 1`` down to its negative
    and one more.
    """
    reach, found = config.reach, []
    for difference in range(config.max_positions - 1, -config.max_positions - 1, -1):
        if config.position_buckets > 0:
            difference = bucket(difference, config.position_buckets, config.span)
        found.append(min(max(difference + reach, 0), 2 * reach - 1))
    return found


class Positions(NamedTuple):
    """The table of relative positions as one block's heads see it, a column for each difference.

    Attributes:
        keys: what queries are compared with, (heads, head_dim, 2 * tokens), for differences
            ``i - j`` from ``tokens - 1`` down to ``-tokens``; ``None`` where they are not.
        queries: what keys are compared with, of the same shape, from ``1 - tokens`` up to
            ``tokens``: a key's difference to a query grows with the query's place.
    """

    keys: Tensor | None
    queries: Tensor | None

    def part(self, heads: slice, tokens: int) -> "Positions":
        """Return what some heads need for that many tokens: views."""
        return Positions(*(None if t is None else _middle(t[heads], tokens) for t in self))


def _middle(lines: Tensor, tokens: int) -> Tensor:
    """Return the columns of differences between that many tokens: (..., 2 * tokens)."""
    longest = lines.shape[-1] // 2
    return lines[..., longest - tokens : longest + tokens]
