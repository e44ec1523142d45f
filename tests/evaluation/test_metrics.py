"""Metrics against definitions worked out by brute force."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from zoo.evaluation.metrics import (
    ClassCounts,
    binomial_error,
    classification_metrics,
    multi_label_metrics,
    roc_auc,
)


@given(st.lists(st.tuples(st.integers(-3, 3), st.booleans()), min_size=1, max_size=30))
def test_the_area_is_the_fraction_of_pairs_in_order(rows: list[tuple[int, bool]]) -> None:
    scores = np.array([score for score, _ in rows], np.float64)
    labels = np.array([label for _, label in rows])
    pairs = [
        1.0 if a > b else 0.5 if a == b else 0.0 for a in scores[labels] for b in scores[~labels]
    ]
    area = roc_auc(scores, labels)
    if pairs:
        assert area == pytest.approx(sum(pairs) / len(pairs), abs=1e-12)
    else:
        assert math.isnan(area)


def test_the_error_of_a_fair_coin() -> None:
    assert binomial_error(0.5, 100) == pytest.approx(0.05)


@pytest.mark.parametrize("predicted", [[0, 1, 1, 1, 0], [0, 1, 3, 1, 0], [3, 3, 3, 3, 3]])
def test_the_mean_over_classes_is_of_those_with_samples_or_predictions(
    predicted: list[int],
) -> None:
    """As in scikit-learn; class 2 has neither, and class 3 has predictions at most."""
    metrics = pytest.importorskip("sklearn.metrics")
    actual = np.array([0, 0, 1, 1, 1])
    counts = ClassCounts.of(actual, np.array(predicted), 4)
    expected = metrics.f1_score(actual, predicted, average="macro", zero_division=0)
    assert classification_metrics(counts)["f1_macro"] == pytest.approx(expected)
    stacked = classification_metrics(ClassCounts(*(np.stack([c, c]) for c in counts)))["f1_macro"]
    assert stacked[0] == pytest.approx(expected)


def test_the_mean_over_several_labels_is_of_all() -> None:
    """As in scikit-learn for indicators."""
    metrics = pytest.importorskip("sklearn.metrics")
    actual = np.array([[1, 0, 0], [1, 1, 0], [0, 1, 0]], bool)
    predicted = np.array([[1, 1, 0], [1, 0, 0], [0, 1, 0]], bool)
    expected = metrics.f1_score(actual, predicted, average="macro", zero_division=0)
    assert multi_label_metrics(predicted, actual)["f1_macro"] == pytest.approx(expected)
