"""Correlations and ranks against SciPy, and against definitions by brute force."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from zoo.metrics.ranks import correlations, mean_ranks, pearson, roc_auc, spearman


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


def test_correlations_equal_scipy() -> None:
    stats = pytest.importorskip("scipy.stats")
    rng = np.random.default_rng(0)
    first = rng.integers(5, size=50).astype(float)  # with ties
    second = first + rng.normal(size=50)
    assert pearson(first, second) == pytest.approx(stats.pearsonr(first, second)[0], abs=1e-12)
    assert spearman(first, second) == pytest.approx(stats.spearmanr(first, second)[0], abs=1e-12)


def test_ranks_of_ties_are_their_mean() -> None:
    assert mean_ranks(np.array([5.0, 1.0, 5.0, 7.0])).tolist() == [2.5, 1.0, 2.5, 4.0]
    assert spearman(np.array([1.0, 2.0, 3.0]), np.array([1.0, 8.0, 27.0])) == pytest.approx(1)


def test_a_constant_has_no_correlation() -> None:
    assert math.isnan(pearson(np.ones(4), np.arange(4.0)))
    assert correlations(np.ones(4), np.arange(4.0)) == {"pearson": 0.0, "spearman": 0.0}
