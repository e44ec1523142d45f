"""Intervals against plain resampling."""

import tracemalloc

import numpy as np
import pytest

from tests.metrics.drawn import drawn
from zoo.metrics import intervals
from zoo.metrics.classification import ClassCounts, classification_metrics, confusion_cells
from zoo.metrics.intervals import binomial_error, bootstrap_classification, bootstrap_samples


def test_the_error_of_a_fair_coin() -> None:
    assert binomial_error(0.5, 100) == pytest.approx(0.05)


@pytest.mark.parametrize("classes", [2, 5])
def test_intervals_are_those_of_resampled_samples(
    classes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    labels, predictions = drawn(classes, 300)
    whole = classification_metrics(ClassCounts.of(labels, predictions, classes))
    cells = confusion_cells(labels, predictions)
    fast = bootstrap_classification(cells, classes, seed=0, resamples=4000)
    plain = bootstrap_samples(
        lambda rows: {
            name: float(value)
            for name, value in classification_metrics(
                ClassCounts.of(labels[rows], predictions[rows], classes)
            ).items()
        },
        300,
        seed=1,
        resamples=4000,
    )
    for name, (low, high) in plain.items():
        assert fast[name] == pytest.approx((low, high), abs=0.01)
        assert low < float(whole[name]) < high
    monkeypatch.setattr(intervals, "MAX_DRAWN", 100 * len(cells))  # 100 draws at a time
    assert fast == bootstrap_classification(cells, classes, seed=0, resamples=4000)


def test_intervals_of_many_labels_take_the_memory_of_the_samples() -> None:
    """A dense matrix of 3,000 labels has 9 million cells; 1,000 draws of it would take 72 GB."""
    classes = 3000
    labels = np.arange(2 * classes) % classes
    predictions = np.where(np.arange(2 * classes) % 3 == 0, (labels + 1) % classes, labels)
    tracemalloc.start()
    cells = confusion_cells(labels, predictions)
    found = bootstrap_classification(cells, classes, seed=0, resamples=200)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    low, high = found["accuracy"]
    assert low < 2 / 3 < high and high - low < 0.03
    assert peak < 40 * 8 * intervals.MAX_DRAWN / 8
