"""Metrics against definitions worked out by brute force."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from zoo.evaluate.metrics import binomial_error, roc_auc


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
