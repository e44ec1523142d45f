"""How well scores tell two kinds apart: the area under the curve of true over false positives.

That area is the part of all pairs, one of each kind, in which the one to be found scores more
(Mann and Whitney 1947, "On a test of whether one of two random variables is stochastically larger
than the other"). Pairs add up as losses do, with one difference: they are of one micro-batch. How
a batch is split decides which pairs there are, so what a step or a validation reports is a mean
over the pairs of its micro-batches, close to that of all tokens at once, and not the same number.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor


def auc_counts(scores: "Tensor", positive: "Tensor", negative: "Tensor") -> "tuple[Tensor, Tensor]":
    """Count the pairs in which what is wanted scores more than the other; n log n for n scores.

    Args:
        scores: of any shape.
        wanted: of the same shape, bool: what is to be found.
        other: of the same shape, bool: what it is to be told from. Scores that are neither, such
            as those of padding, do not count.

    Returns:
        the pairs that are won, float64, those of equal scores as one half each; and how many
        pairs there are, int64.
    """
    import torch
    from torch.nn import functional as F

    found, chosen = scores.flatten(), positive.flatten()
    ordered, order = found.sort()
    others = F.pad(negative.flatten()[order].cumsum(0), (1, 0))  # among the n lowest scores
    below = others[torch.searchsorted(ordered, found)]
    up_to = others[torch.searchsorted(ordered, found, right=True)]
    return ((below + up_to) * chosen).sum().double() / 2, chosen.sum() * negative.sum()
