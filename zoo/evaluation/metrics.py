"""Metrics over predictions, in float64."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.floating[Any]]
    Ints = NDArray[np.integer[Any]]

RESAMPLES, COVERAGE = 1000, 0.95  # of bootstrap intervals
DRAWN = 1 << 21  # numbers of bootstrap draws that are held at once
BINS = 15  # of reliability curves, as in Guo et al. 2017


def roc_auc(scores: "Floats", labels: "NDArray[np.bool_]") -> float:
    """Return the area under the ROC curve: the probability that a positive outranks a negative.

    Ties count a half (Mann-Whitney statistic). NaN if all labels are equal.

    Args:
        scores: (n,), higher for the positive class.
        labels: (n,), true for the positive class.
    """
    positives = int(labels.sum())
    negatives = len(labels) - positives
    if not positives or not negatives:
        return float("nan")
    wins = mean_ranks(scores)[labels].sum() - positives * (positives + 1) / 2
    return float(wins / (positives * negatives))


def mean_ranks(values: "Floats") -> "NDArray[np.float64]":
    """Return the rank of each value, from 1; tied values have the mean of their ranks.

    Args:
        values: (n,).
    """
    import numpy as np

    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    ends = counts.cumsum()
    mean: NDArray[np.float64] = (ends - (counts - 1) / 2)[inverse]
    return mean


def binomial_error(accuracy: float, count: int) -> float:
    """Return the standard error of an accuracy over independent samples."""
    return float((accuracy * (1 - accuracy) / count) ** 0.5)


class ClassCounts(NamedTuple):
    """What the metrics of a classifier need of its confusion matrix, whose size is labels squared.

    Attributes:
        hits: samples of each label that are predicted, (..., classes).
        predicted: predictions of each label, (..., classes).
        actual: samples of each label, (..., classes).
    """

    hits: "NDArray[np.int64]"
    predicted: "NDArray[np.int64]"
    actual: "NDArray[np.int64]"

    @classmethod
    def of(
        cls,
        labels: "Ints",
        predictions: "Ints",
        classes: int,
        weights: "Ints | None" = None,
    ) -> "ClassCounts":
        """Return the counts of samples.

        Args:
            labels: (n,), from 0.
            predictions: (n,), from 0.
            classes: number of classes.
            weights: number of times that each sample counts, (n,); by default once.
        """
        import numpy as np

        times = np.ones(len(labels), np.int64) if weights is None else weights
        hits = np.where(labels == predictions, times, 0)
        return cls(
            *(
                np.bincount(numbers, weights=values, minlength=classes).astype(np.int64)
                for numbers, values in ((labels, hits), (predictions, times), (labels, times))
            )
        )

    def first(self, classes: int) -> "ClassCounts":
        """Return the counts of the first classes only."""
        return ClassCounts(*(values[..., :classes] for values in self))


def confusion_cells(labels: "Ints", predictions: "Ints") -> "NDArray[np.int64]":
    """Return the cells of the confusion matrix that have samples.

    Args:
        labels: (n,), from 0.
        predictions: (n,), from 0.

    Returns:
        label, prediction and number of samples of each cell, (cells, 3), sorted.
    """
    import numpy as np

    pairs = np.stack([labels, predictions], axis=1)
    cells, counts = np.unique(pairs, axis=0, return_counts=True)
    return np.concatenate([cells, counts[:, None]], axis=1).astype(np.int64)


def class_scores(counts: ClassCounts) -> "dict[str, NDArray[np.float64]]":
    """Return ``precision``, ``recall`` and ``f1`` of each class, (..., classes) each.

    A quotient of which both parts are 0 is 0, as in scikit-learn.
    """
    import numpy as np

    def ratio(above: Any, below: Any) -> "NDArray[np.float64]":
        quotient: NDArray[np.float64] = np.zeros(np.broadcast(above, below).shape)
        np.divide(above, below, out=quotient, where=below > 0)
        return quotient

    return {
        "precision": ratio(counts.hits, counts.predicted),
        "recall": ratio(counts.hits, counts.actual),
        "f1": ratio(2 * counts.hits, counts.predicted + counts.actual),
    }


def f1_macro(counts: ClassCounts) -> "NDArray[np.float64]":
    """Return the mean F1 of the classes that have samples or predictions, (...,).

    This is ``f1_score(average="macro")`` of scikit-learn without ``labels``: a class that the data
    lacks counts as 0 if it is predicted, and is left out otherwise.
    """
    import numpy as np

    seen = counts.predicted + counts.actual > 0
    mean: NDArray[np.float64] = class_scores(counts)["f1"].sum(-1) / np.maximum(seen.sum(-1), 1)
    return mean


def matthews_correlation(counts: ClassCounts) -> "NDArray[np.float64]":
    """Return the Matthews correlation of several classes (Gorodkin 2004, Computational Biology and
    Chemistry 28, equation 8); 0 where all labels or all predictions are equal.

    Returns:
        (...,).
    """
    import numpy as np

    hits, predicted, actual = (values.astype(np.float64) for values in counts)
    total = actual.sum(-1)
    above = hits.sum(-1) * total - (predicted * actual).sum(-1)
    below = (total**2 - (predicted**2).sum(-1)) * (total**2 - (actual**2).sum(-1))
    correlation: NDArray[np.float64] = np.zeros(np.shape(above))
    np.divide(above, np.sqrt(below), out=correlation, where=below > 0)
    return correlation


def classification_metrics(counts: ClassCounts) -> "dict[str, NDArray[np.float64]]":
    """Return the metrics of a classifier, (...,) each.

    ``f1`` of two classes is that of the second one; of more classes, see ``f1_macro``.
    """
    import numpy as np

    two = counts.hits.shape[-1] == 2
    f1 = {"f1": class_scores(counts)["f1"][..., 1]} if two else {"f1_macro": f1_macro(counts)}
    return {
        "accuracy": counts.hits.sum(-1) / np.maximum(counts.actual.sum(-1), 1),
        **f1,
        "matthews_correlation": matthews_correlation(counts),
    }


def reliability(
    confidences: "Floats", correct: "NDArray[np.bool_]", bins: int = BINS
) -> tuple[float, list[dict[str, float]]]:
    """Return the expected calibration error, and the points of the reliability curve.

    Predictions are put into bins of equal width by their confidence. The error is the mean
    distance between accuracy and mean confidence of the bins, weighted by their samples (Guo et
    al. 2017, arXiv:1706.04599, equation 3).

    Args:
        confidences: probabilities of the predicted labels, (n,), from 0 to 1.
        correct: (n,), true where the prediction is the label.
        bins: number of bins.

    Returns:
        the error; and ``confidence``, ``accuracy`` and ``samples`` of each bin that has samples.
    """
    import numpy as np

    # a bin excludes its lower end, and includes the upper one
    numbers = np.clip(np.ceil(confidences * bins).astype(np.int64) - 1, 0, bins - 1)
    points = [
        {
            "confidence": float(confidences[inside].mean()),
            "accuracy": float(correct[inside].mean()),
            "samples": int(inside.sum()),
        }
        for inside in (numbers == number for number in range(bins))
        if inside.any()
    ]
    gaps = (abs(point["accuracy"] - point["confidence"]) * point["samples"] for point in points)
    return sum(gaps) / len(confidences), points


def pearson(first: "Floats", second: "Floats") -> float:
    """Return Pearson's correlation; NaN if one side is constant.

    Args:
        first: (n,).
        second: (n,).
    """
    import numpy as np

    a, b = (
        values.astype(np.float64) - np.mean(values, dtype=np.float64) for values in (first, second)
    )
    scale = np.sqrt((a * a).sum()) * np.sqrt((b * b).sum())
    return float(np.clip((a * b).sum() / scale, -1, 1)) if scale else float("nan")


def spearman(first: "Floats", second: "Floats") -> float:
    """Return Spearman's correlation, that of the ranks; NaN if one side is constant.

    Args:
        first: (n,).
        second: (n,).
    """
    return pearson(mean_ranks(first), mean_ranks(second))


def regression_metrics(predictions: "Floats", labels: "Floats") -> dict[str, float]:
    """Return Pearson's and Spearman's correlations and the mean squared error.

    Args:
        predictions: (n,).
        labels: (n,).
    """
    import numpy as np

    error = float(np.mean((predictions.astype(np.float64) - labels) ** 2))
    return {**correlations(predictions, labels), "mse": error}


def correlations(first: "Floats", second: "Floats") -> dict[str, float]:
    """Return Pearson's and Spearman's correlations; those with a constant are 0.

    Args:
        first: (n,).
        second: (n,).
    """
    import numpy as np

    values = {"pearson": pearson(first, second), "spearman": spearman(first, second)}
    return {name: 0.0 if np.isnan(value) else value for name, value in values.items()}


def bootstrap_classification(
    cells: "Ints", classes: int, seed: int, resamples: int = RESAMPLES
) -> dict[str, tuple[float, float]]:
    """Return percentile bootstrap intervals of ``classification_metrics`` (Efron 1979).

    Samples that are drawn with replacement have multinomially distributed counts in the cells of
    the confusion matrix. Only cells with samples are drawn, some draws at a time, so that memory
    is bounded by ``DRAWN`` and grows neither with the square of the labels nor with the samples.

    Args:
        cells: see ``confusion_cells``, (cells, 3).
        classes: number of classes.
        seed: seed of the draws.
        resamples: number of draws.
    """
    import numpy as np

    labels, predictions, counts = cells.T
    rng, total = np.random.default_rng(seed), int(counts.sum())
    hit = labels == predictions
    at_once = max(1, DRAWN // max(len(cells), classes))
    parts: list[dict[str, Any]] = []
    for start in range(0, resamples, at_once):
        size = min(at_once, resamples - start)
        draws = rng.multinomial(total, counts / total, size=size)
        drawn = ClassCounts(
            _add_columns(draws[:, hit], labels[hit], classes),
            _add_columns(draws, predictions, classes),
            _add_columns(draws, labels, classes),
        )
        parts.append(classification_metrics(drawn))
    return {name: interval(np.concatenate([part[name] for part in parts])) for name in parts[0]}


def _add_columns(values: "Ints", numbers: "Ints", classes: int) -> "NDArray[np.int64]":
    """Return the sums of the columns of each class, (rows, classes), from (rows, columns)."""
    import numpy as np

    order = np.argsort(numbers, kind="stable")
    present, starts = np.unique(numbers[order], return_index=True)
    sums = np.zeros((len(values), classes), np.int64)
    if len(present):
        sums[:, present] = np.add.reduceat(values[:, order], starts, axis=1)
    return sums


def bootstrap_samples(
    metrics: "Callable[[Ints], Mapping[str, float]]",
    count: int,
    seed: int,
    resamples: int = RESAMPLES,
) -> dict[str, tuple[float, float]]:
    """Return percentile bootstrap intervals of metrics that need the samples themselves.

    Args:
        metrics: function of the indices of a draw, (count,), that returns metrics by name.
        count: number of samples.
        seed: seed of the draws.
        resamples: number of draws.
    """
    import numpy as np

    rng = np.random.default_rng(seed)
    draws = [metrics(rng.integers(count, size=count)) for _ in range(resamples)]
    return {name: interval(np.array([draw[name] for draw in draws])) for name in draws[0]}


def interval(values: "Floats") -> tuple[float, float]:
    """Return the range of the middle ``COVERAGE`` of values, (n,)."""
    import numpy as np

    low, high = np.quantile(values, [(1 - COVERAGE) / 2, (1 + COVERAGE) / 2])
    return float(low), float(high)


def multi_label_metrics(
    predictions: "NDArray[np.bool_]", labels: "NDArray[np.bool_]"
) -> dict[str, float]:
    """Return the F1 over all labels (``f1_micro``), its mean over labels (``f1_macro``), and the
    fraction of samples with all labels right (``exact_match``).

    As in ``f1_score`` of scikit-learn for several labels, the mean is over all labels of the model,
    and one with neither samples nor predictions counts as 0.

    Args:
        predictions: (n, labels).
        labels: (n, labels).
    """
    import numpy as np

    hits, total = (predictions & labels).sum(0), predictions.sum(0) + labels.sum(0)
    per_label = np.divide(2 * hits, total, out=np.zeros(len(hits)), where=total > 0)
    return {
        "f1_micro": float(2 * hits.sum() / max(1, total.sum())),
        "f1_macro": float(per_label.mean()),
        "exact_match": float((predictions == labels).all(1).mean()),
    }
