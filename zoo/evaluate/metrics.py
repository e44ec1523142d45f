"""Metrics over predictions."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


def roc_auc(scores: "NDArray[np.floating[Any]]", labels: "NDArray[np.bool_]") -> float:
    """Return the area under the ROC curve: the probability that a positive outranks a negative.

    Ties count a half (Mann-Whitney statistic). NaN if all labels are equal.

    Args:
        scores: (n,), higher for the positive class.
        labels: (n,), true for the positive class.
    """
    import numpy as np

    positives = int(labels.sum())
    negatives = len(labels) - positives
    if not positives or not negatives:
        return float("nan")
    _, inverse, counts = np.unique(scores, return_inverse=True, return_counts=True)
    ends = counts.cumsum()
    mean_ranks = (ends - (counts - 1) / 2)[inverse]  # of tied scores, the mean rank
    wins = mean_ranks[labels].sum() - positives * (positives + 1) / 2
    return float(wins / (positives * negatives))


def binomial_error(accuracy: float, count: int) -> float:
    """Return the standard error of an accuracy over independent samples."""
    return float((accuracy * (1 - accuracy) / count) ** 0.5)
