"""Standard errors, and bootstrap intervals of metrics."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from zoo.metrics.classification import ClassCounts, Ints, classification_metrics

Floats = NDArray[np.floating[Any]]

# Bootstrap intervals: the number of draws, and the probability that an interval covers.
RESAMPLES = 1000
COVERAGE = 0.95
MAX_DRAWN = 1 << 21  # numbers of bootstrap draws that are held at once


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
    intervals = {}
    for name in draws[0]:
        values = [draw[name] for draw in draws]
        intervals[name] = interval(np.array(values))
    return intervals


def bootstrap_classification(
    cells: Ints, classes: int, seed: int, resamples: int = RESAMPLES
) -> dict[str, tuple[float, float]]:
    """Return percentile bootstrap intervals of ``classification_metrics`` (Efron 1979).

    The counts of samples that are drawn with replacement have a multinomial distribution over the
    cells of a confusion matrix. Memory is bounded by ``MAX_DRAWN``, and grows neither with the
    square of the labels nor with the samples.

    Args:
        cells: the result of ``confusion_cells``.
        classes: the number of classes.
        seed: the seed of the draws.
        resamples: the number of draws.
    """
    labels, predictions, counts = cells.T
    rng = np.random.default_rng(seed)
    total = int(counts.sum())
    is_hit = labels == predictions
    chunk_size = max(1, MAX_DRAWN // max(len(cells), classes))
    chunks: list[dict[str, Any]] = []
    for start in range(0, resamples, chunk_size):
        size = min(chunk_size, resamples - start)
        draws = rng.multinomial(total, counts / total, size=size)
        drawn_counts = ClassCounts(
            _add_columns(draws[:, is_hit], labels[is_hit], classes),
            _add_columns(draws, predictions, classes),
            _add_columns(draws, labels, classes),
        )
        chunks.append(classification_metrics(drawn_counts))
    intervals = {}
    for name in chunks[0]:
        values = [chunk[name] for chunk in chunks]
        intervals[name] = interval(np.concatenate(values))
    return intervals


def _add_columns(values: Ints, numbers: Ints, classes: int) -> NDArray[np.int64]:
    """Return the sums of the columns of each class, (rows, classes), from (rows, columns)."""
    # ``reduceat`` adds runs of adjacent columns.
    order = np.argsort(numbers, kind="stable")
    present, starts = np.unique(numbers[order], return_index=True)
    sums = np.zeros((len(values), classes), np.int64)
    if len(present):
        sums[:, present] = np.add.reduceat(values[:, order], starts, axis=1)
    return sums
