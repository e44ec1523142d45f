"""Metrics of predicted labels, in float64."""

from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.integer[Any]]
Floats = NDArray[np.floating[Any]]

BINS = 15  # bins of reliability curves, as in Guo et al. 2017


def accuracy(predictions: NDArray[Any], labels: NDArray[Any]) -> float:
    """Return the fraction of predictions that equal their labels, of numbers or texts, (n,)."""
    return float((predictions == labels).mean())


class ClassCounts(NamedTuple):
    """The sums of a confusion matrix that metrics need, each (..., classes).

    The matrix itself would grow with the square of the labels.
    """

    hits: NDArray[np.int64]  # correct predictions of each label
    predicted: NDArray[np.int64]  # predictions of each label
    actual: NDArray[np.int64]  # samples of each label

    @classmethod
    def of(cls, labels: Ints, predictions: Ints, classes: int, weights: Ints | None = None) -> Self:
        """Count labels and predictions, (n,) from 0; each sample counts once, or by its weight."""
        sample_weights = np.ones(len(labels), np.int64) if weights is None else weights
        hit_weights = np.where(labels == predictions, sample_weights, 0)

        def count(numbers: Ints, number_weights: Ints) -> NDArray[np.int64]:
            counts = np.bincount(numbers, weights=number_weights, minlength=classes)
            return counts.astype(np.int64)

        return cls(
            hits=count(labels, hit_weights),
            predicted=count(predictions, sample_weights),
            actual=count(labels, sample_weights),
        )

    def first(self, classes: int) -> Self:
        """Return the counts of the first classes only."""
        return type(self)(*(values[..., :classes] for values in self))


def confusion_cells(labels: Ints, predictions: Ints) -> NDArray[np.int64]:
    """Return label, prediction and count of each cell that has samples, (cells, 3), sorted."""
    pairs = np.stack([labels, predictions], axis=1)
    cells, counts = np.unique(pairs, axis=0, return_counts=True)
    return np.concatenate([cells, counts[:, None]], axis=1).astype(np.int64)


def class_scores(counts: ClassCounts) -> dict[str, NDArray[np.float64]]:
    """Return ``precision``, ``recall`` and ``f1`` of each class, (..., classes) each.

    As in scikit-learn, 0 / 0 is 0.
    """

    def ratio(above: Any, below: Any) -> NDArray[np.float64]:
        quotient: NDArray[np.float64] = np.zeros(np.broadcast(above, below).shape)
        np.divide(above, below, out=quotient, where=below > 0)
        return quotient

    return {
        "precision": ratio(counts.hits, counts.predicted),
        "recall": ratio(counts.hits, counts.actual),
        "f1": ratio(2 * counts.hits, counts.predicted + counts.actual),
    }


def f1_macro(counts: ClassCounts) -> NDArray[np.float64]:
    """Return the mean F1 of the classes that have samples or predictions, (...,).

    This is ``f1_score(average="macro")`` of scikit-learn without ``labels``: a class that the data
    lacks counts as 0 if it is predicted, and is left out otherwise.
    """
    is_present = counts.predicted + counts.actual > 0
    f1 = class_scores(counts)["f1"]
    mean: NDArray[np.float64] = f1.sum(-1) / np.maximum(is_present.sum(-1), 1)
    return mean


def matthews_correlation(counts: ClassCounts) -> NDArray[np.float64]:
    """Return the Matthews correlation of several classes, (...,).

    It is equation 8 of Gorodkin 2004, Computational Biology and Chemistry 28, and 0 where all
    labels or all predictions are equal.
    """
    hits, predicted, actual = (values.astype(np.float64) for values in counts)
    total = actual.sum(-1)
    above = hits.sum(-1) * total - (predicted * actual).sum(-1)
    below = (total**2 - (predicted**2).sum(-1)) * (total**2 - (actual**2).sum(-1))
    correlation: NDArray[np.float64] = np.zeros(np.shape(above))
    np.divide(above, np.sqrt(below), out=correlation, where=below > 0)
    return correlation


def classification_metrics(counts: ClassCounts) -> dict[str, NDArray[np.float64]]:
    """Return the metrics of a classifier, (...,) each.

    With two classes, ``f1`` scores the second one; with more, ``f1_macro`` takes its place.
    """
    metrics = {"accuracy": counts.hits.sum(-1) / np.maximum(counts.actual.sum(-1), 1)}
    if counts.hits.shape[-1] == 2:
        metrics["f1"] = class_scores(counts)["f1"][..., 1]
    else:
        metrics["f1_macro"] = f1_macro(counts)
    metrics["matthews_correlation"] = matthews_correlation(counts)
    return metrics


def multi_label_metrics(
    predictions: NDArray[np.bool_], labels: NDArray[np.bool_]
) -> dict[str, float]:
    """Return ``f1_micro``, ``f1_macro`` and ``exact_match`` of flags, (n, labels) each.

    As in ``f1_score`` of scikit-learn for several labels, ``f1_macro`` is the mean over all labels,
    and a label with neither samples nor predictions counts as 0.
    """
    hits = (predictions & labels).sum(0)
    total = predictions.sum(0) + labels.sum(0)
    per_label = np.divide(2 * hits, total, out=np.zeros(len(hits)), where=total > 0)
    return {
        "f1_micro": float(2 * hits.sum() / max(1, total.sum())),
        "f1_macro": float(per_label.mean()),
        "exact_match": float((predictions == labels).all(1).mean()),
    }


def reliability(
    confidences: Floats, correct: NDArray[np.bool_], bins: int = BINS
) -> tuple[float, list[dict[str, float]]]:
    """Return the expected calibration error and the points of the reliability curve.

    Confidences are put into bins of equal width. The error is the mean distance between accuracy
    and mean confidence of a bin, weighted by its samples (Guo et al. 2017, arXiv:1706.04599,
    equation 3). Empty bins have no point.

    Args:
        confidences: the probabilities of the predicted labels, (n,).
        correct: whether the predictions are right, (n,).
        bins: the number of bins.
    """
    # A bin excludes its lower end, and includes the upper one.
    numbers = np.clip(np.ceil(confidences * bins).astype(np.int64) - 1, 0, bins - 1)
    points = []
    gaps = 0.0
    for number in range(bins):
        is_inside = numbers == number
        if not is_inside.any():
            continue
        confidence = float(confidences[is_inside].mean())
        bin_accuracy = float(correct[is_inside].mean())
        samples = int(is_inside.sum())
        points.append({"confidence": confidence, "accuracy": bin_accuracy, "samples": samples})
        gaps += abs(bin_accuracy - confidence) * samples
    return gaps / len(confidences), points
