"""Relative positions in attention: biases by distance, and scores without gathering by pairs."""

import functools

import torch
from torch import Tensor, nn


class RelativePositions(nn.Module):
    """A learned bias of the attention scores for each head and bucket of distances.

    Raffel et al. 2019, arXiv:1910.10683, section 2.1. The weights are not initialized.

    Args:
        num_buckets: number of buckets.
        max_distance: the distance from which on all are in one bucket.
        num_heads: number of attention heads.
        bidirectional: whether keys after a query have buckets of their own.
    """

    def __init__(
        self, num_buckets: int, max_distance: int, num_heads: int, *, bidirectional: bool = True
    ) -> None:
        super().__init__()
        self.num_buckets = num_buckets
        self.max_distance = max_distance
        self.bidirectional = bidirectional
        self.weight = nn.Parameter(torch.empty(num_buckets, num_heads))

    def forward(self, queries: int, keys: int) -> Tensor:
        """Return (1, heads, queries, keys); the last query has the position of the last key."""
        device = self.weight.device
        key = torch.arange(keys, device=device)
        query = torch.arange(queries, device=device)
        distance = key - (query + (keys - queries))[:, None]
        return self.by_distance(distance)[None]

    def by_distance(self, distance: Tensor) -> Tensor:
        """Return the biases of distances, a key's position minus a query's.

        Args:
            distance: (queries, keys), int64.

        Returns:
            (heads, queries, keys).
        """
        buckets = distance_buckets(self.num_buckets, self.max_distance, self.bidirectional)
        # The host waits for a copy of a list to a device, but not for this one.
        columns = torch.tensor(buckets).to(self.weight.device, non_blocking=True)
        biases = self.weight.t()[:, columns]
        index = distance.clamp(-self.max_distance, self.max_distance) + self.max_distance
        return biases[:, index]


@functools.cache
def distance_buckets(count: int, max_distance: int, bidirectional: bool) -> tuple[int, ...]:
    """Return the bucket of each relative position from ``-max_distance`` to ``max_distance``."""
    # For earlier keys, each of the first distances has a bucket of its own; larger ones share
    # buckets that grow logarithmically up to ``max_distance`` (arXiv:1910.10683, section 2.1).
    # Later keys use the other half of the buckets in the same way, or bucket 0 if the stack is
    # causal. The logarithms are compared as powers of integers, which do not round.
    half = count // 2 if bidirectional else count
    exact = half // 2  # Number of buckets of a single distance.
    steps = half - exact  # Number of growing buckets.

    def bucket(distance: int) -> int:
        if distance < exact:
            return distance
        # The step is log(distance / exact) / log(max_distance / exact) * steps, rounded down.
        step = 0
        while step + 1 < steps:
            limit = max_distance ** (step + 1) * exact**steps
            if distance**steps * exact ** (step + 1) < limit:
                break
            step += 1
        return exact + step

    earlier = [bucket(distance) for distance in range(max_distance + 1)]
    if bidirectional:
        later = [half + number for number in earlier[1:]]
    else:
        later = [0] * max_distance
    return (*reversed(earlier), *later)


def relative_shift(content: Tensor, positions: Tensor) -> Tensor:
    """Return the scores of queries against relative positions.

    Args:
        content: (heads, batch, queries, head_size): the queries, which are the last of the keys.
        positions: (heads, head_size, queries + keys): a vector for each difference of a position to
            that of the query, from ``1 - keys`` up to ``queries``.

    Returns:
        (heads, batch, queries, keys): scores of each query with all positions of its row.
    """
    # Where a score depends on a query and on the *difference* of two positions, it is one of the
    # products of the query with a vector for each difference (Dai et al. 2019, arXiv:1901.02860,
    # appendix B). With one line of products per query, ordered by difference, the scores are what
    # is left after shifting each line by one against the line before. Shifting is a change of
    # strides.
    lines = content.flatten(1, 2) @ positions
    return shift(lines.view(*content.shape[:3], -1))


def shift(lines: Tensor) -> Tensor:
    """Shift line ``i`` left by ``queries - 1 - i``, and keep ``keys`` of its elements: a view.

    Args:
        lines: (..., queries, queries + keys), contiguous.

    Returns:
        (..., queries, keys).
    """
    # After the first queries - 1 elements are dropped, rows of one element less start one element
    # further left in each line.
    queries, width = lines.shape[-2:]
    flat = lines.flatten(-2)[..., queries - 1 : -1]
    return flat.reshape(*flat.shape[:-1], queries, width - 1)[..., : width - queries]
