"""Attention scores of relative positions, computed without gathering for each pair of tokens."""

from torch import Tensor


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
