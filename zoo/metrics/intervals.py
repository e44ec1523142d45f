"""Standard errors, and bootstrap intervals of metrics."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from zoo.metrics.classification import ClassCounts, Ints, classification_metrics

Floats = NDArray[np.floating[Any]]

# of bootstrap intervals
RESAMPLES = 1000
COVERAGE = 0.95
DRAWN = 1 << 21  # numbers of bootstrap draws that are held at once


def binomial_error(accuracy: float, count: int) -> float:
    """Return the standard error of an accuracy over independent samples."""
    return float((accuracy * (1 - accuracy) / count) ** 0.5)


def interval(values: Floats) -> tuple[float, float]:
    """Return the range of the middle ``COVERAGE`` of values, (n,)."""
    low, high = np.quantile(values, [(1 - COVERAGE) / 2, (1 + COVERAGE) / 2])
    return float(low), float(high)


def bootstrap_samples(
    metrics: Callable[[Ints], Mapping[str, float]],
    count: int,
    seed: int,
    resamples: int = RESAMPLES,
) -> dict[str, tuple[float, float]]:
    """Return percentile bootstrap intervals of metrics that need the samples themselves.

    ``metrics`` gets the indices of the samples of a draw, (count,).
    """
    rng = np.random.default_rng(seed)
    draws = [metrics(rng.integers(count, size=count)) for _ in range(resamples)]
    return {name: interval(np.array([draw[name] for draw in draws])) for name in draws[0]}


def bootstrap_classification(
    cells: Ints, classes: int, seed: int, resamples: int = RESAMPLES
) -> dict[str, tuple[float, float]]:
    """Return percentile bootstrap intervals of ``classification_metrics`` (Efron 1979)."""
    # Takes the cells of ``confusion_cells``: the counts of samples that are drawn with replacement
    # have a multinomial distribution over them. Memory is bounded by ``DRAWN``, and grows neither
    # with the square of the labels nor with the samples
    labels, predictions, counts = cells.T
    rng = np.random.default_rng(seed)
    total = int(counts.sum())
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


def _add_columns(values: Ints, numbers: Ints, classes: int) -> NDArray[np.int64]:
    """Return the sums of the columns of each class, (rows, classes), from (rows, columns)."""
    # reduceat adds runs of adjacent columns
    order = np.argsort(numbers, kind="stable")
    present, starts = np.unique(numbers[order], return_index=True)
    sums = np.zeros((len(values), classes), np.int64)
    if len(present):
        sums[:, present] = np.add.reduceat(values[:, order], starts, axis=1)
    return sums
