"""Correlations, the area under the ROC curve and the squared error, in float64."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.floating[Any]]


def mean_ranks(values: Floats) -> NDArray[np.float64]:
    """Return the rank of each value from 1, (n,); tied values get the mean of their ranks."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    ends = counts.cumsum()
    mean: NDArray[np.float64] = (ends - (counts - 1) / 2)[inverse]
    return mean


def rank_differences(first: Floats, second: Floats) -> NDArray[np.float64]:
    """Return by how much each value ranks higher in the first array, (n,), from -1 to 1.

    It is the difference of ranks as a share of the largest one, n - 1; Spearman's correlation adds
    its squares.
    """
    return (mean_ranks(first) - mean_ranks(second)) / max(1, len(first) - 1)


def roc_auc(scores: Floats, labels: NDArray[np.bool_]) -> float:
    """Return the area under the ROC curve of scores, (n,), or NaN if all labels are equal.

    It is the probability that a positive outranks a negative, where ties count a half
    (Mann-Whitney statistic).
    """
    positives = int(labels.sum())
    negatives = len(labels) - positives
    if not positives or not negatives:
        return float("nan")
    wins = mean_ranks(scores)[labels].sum() - positives * (positives + 1) / 2
    return float(wins / (positives * negatives))


def pearson(first: Floats, second: Floats) -> float:
    """Return Pearson's correlation of two arrays, (n,); NaN if one is constant."""
    a = first.astype(np.float64) - np.mean(first, dtype=np.float64)
    b = second.astype(np.float64) - np.mean(second, dtype=np.float64)
    scale = np.sqrt((a * a).sum()) * np.sqrt((b * b).sum())
    if not scale:
        return float("nan")
    return float(np.clip((a * b).sum() / scale, -1, 1))


def spearman(first: Floats, second: Floats) -> float:
    """Return Spearman's correlation of two arrays, (n,); NaN if one is constant."""
    return pearson(mean_ranks(first), mean_ranks(second))


def correlations(first: Floats, second: Floats) -> dict[str, float]:
    """Return Pearson's and Spearman's correlations; 0 if one side is constant."""
    values = {"pearson": pearson(first, second), "spearman": spearman(first, second)}
    return {name: 0.0 if np.isnan(value) else value for name, value in values.items()}


def regression_metrics(predictions: Floats, labels: Floats) -> dict[str, float]:
    """Return Pearson's and Spearman's correlations and the mean squared error."""
    error = float(np.mean((predictions.astype(np.float64) - labels) ** 2))
    return {**correlations(predictions, labels), "mse": error}
