"""Relative positions: the table row of each difference, and the projected table."""

import math
from collections.abc import Sequence
from typing import NamedTuple

from torch import Tensor

from zoo_deberta.config import DebertaConfig


def bucket(difference: int, buckets: int, farthest: int) -> int:
    """Return the bucket of a difference of positions."""
    # Half of the buckets of each direction hold one difference each. The others grow
    # logarithmically, and the last one ends at ``farthest``
    middle = buckets // 2
    if abs(difference) <= middle:
        return difference
    part = math.log(abs(difference) / middle) / math.log((farthest - 1) / middle)
    return (math.ceil(part * (middle - 1)) + middle) * (1 if difference > 0 else -1)


def rows_by_difference(config: DebertaConfig) -> Sequence[int]:
    """Return the table row of each difference, from ``max_positions - 1`` down to
    ``-max_positions``.
    """
    reach = config.reach
    rows = []
    for difference in range(config.max_positions - 1, -config.max_positions - 1, -1):
        if config.position_buckets > 0:
            difference = bucket(difference, config.position_buckets, config.span)
        rows.append(min(max(difference + reach, 0), 2 * reach - 1))
    return rows


class DisentangledPositions(NamedTuple):
    """The table of relative positions, projected by one block: a column for each difference."""

    # scored with queries, (heads, head_size, 2 * tokens), for differences ``i - j`` from ``tokens -
    # 1`` down to ``-tokens``; ``None`` without that term
    keys: Tensor | None
    # scored with keys, (heads, head_size, 2 * tokens), for differences from ``1 - tokens`` up to
    # ``tokens``, since the difference of a key to a query grows with the query's position; ``None``
    # without that term
    queries: Tensor | None

    def part(self, heads: slice, tokens: int) -> "DisentangledPositions":
        """Return the positions of some heads and of ``tokens`` tokens, as views."""
        return DisentangledPositions(
            *(None if t is None else _middle(t[heads], tokens) for t in self)
        )


def _middle(lines: Tensor, tokens: int) -> Tensor:
    """Return the columns of the differences between ``tokens`` tokens, (..., 2 * tokens)."""
    longest = lines.shape[-1] // 2
    return lines[..., longest - tokens : longest + tokens]
