"""The area under the ROC curve (AUC), as a sum and a count."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor


def auc_counts(scores: "Tensor", positive: "Tensor", negative: "Tensor") -> "tuple[Tensor, Tensor]":
    """Count the pairs whose positive example has the larger logit, in O(n log n), and all pairs.

    Ties count one half. Examples that are neither, such as padding, do not count.
    """
    # The AUC is the fraction of pairs of a positive and a negative example in which the positive
    # one has the larger logit (Mann and Whitney 1947, "On a test of whether one of two random
    # variables is stochastically larger than the other"). Pairs are of one micro-batch, so the
    # value of a step or an evaluation is a mean over the pairs of its micro-batches: close to the
    # AUC of all tokens, but not the same number.
    import torch
    from torch.nn import functional as F

    values = scores.flatten()
    is_positive = positive.flatten()
    ordered, order = values.sort()
    # Number of negative examples among the n lowest scores.
    negative_counts = F.pad(negative.flatten()[order].cumsum(0), (1, 0))
    below = negative_counts[torch.searchsorted(ordered, values)]
    up_to = negative_counts[torch.searchsorted(ordered, values, right=True)]
    pairs = ((below + up_to) * is_positive).sum().double() / 2
    return pairs, is_positive.sum() * negative.sum()
