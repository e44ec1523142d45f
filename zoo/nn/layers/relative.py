"""Scores by how far apart tokens are, without gathering anything for the pairs of tokens.

Where a score depends on a content and on a *difference* of places alone, the products of all
contents with one vector for each difference are all there is to compute (Dai et al. 2019,
arXiv:1901.02860, appendix B). Lined up by difference, they are the scores after each line is
shifted by one against the line before, and shifting is a change of strides.
"""

from torch import Tensor


def relative_shift(content: Tensor, positions: Tensor) -> Tensor:
    """Score contents against the positions of all tokens as seen from each.

    Args:
        content: (heads, batch, tokens, head_dim).
        positions: (heads, head_dim, 2 * tokens), a column for each difference of a place to that of
            the content: from ``1 - tokens`` up to ``tokens``.

    Returns:
        (heads, batch, tokens, tokens): for each content, the tokens at the other end.
    """
    lines = content.flatten(1, 2) @ positions
    return shift(lines.view(*content.shape[:3], -1))


def shift(lines: Tensor) -> Tensor:
    """Move line ``i`` left by ``tokens - 1 - i``, and keep ``tokens`` of its elements: a view.

    Args:
        lines: (..., tokens, 2 * tokens), contiguous.

    Returns:
        (..., tokens, tokens).
    """
    tokens = lines.shape[-2]
    flat = lines.flatten(-2)[..., tokens - 1 : -1]
    return flat.reshape(*flat.shape[:-1], tokens, 2 * tokens - 1)[..., :tokens]
