"""Metrics against definitions worked out by brute force."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from zoo.evaluation.metrics import (
    binomial_error,
    classification_metrics,
    confusion_matrix,
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


def test_an_absent_class_counts_as_0_in_the_mean_over_classes() -> None:
    """As in scikit-learn with the labels given, whose default leaves the class out."""
    metrics = pytest.importorskip("sklearn.metrics")
    actual, predicted = np.array([0, 0, 1, 1, 1]), np.array([0, 1, 1, 1, 0])
    ours = classification_metrics(confusion_matrix(actual, predicted, 3))
    options = {"average": "macro", "zero_division": 0}
    expected = metrics.f1_score(actual, predicted, labels=range(3), **options)
    assert ours["f1_macro"] == pytest.approx(expected)
    assert ours["f1_macro"] < metrics.f1_score(actual, predicted, **options)
