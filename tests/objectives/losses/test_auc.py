"""The area under the ROC curve, compared with a count over all pairs."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from zoo.objectives.losses.auc import auc_counts

KINDS = st.sampled_from(["wanted", "other", "padding"])
FEW = st.sampled_from([-1.5, 0.0, 0.25, 3.0])  # few values, for many ties
SCORES = st.one_of(FEW, st.floats(-(2.0**90), 2.0**90, width=32))


@settings(deadline=None)
@given(st.lists(st.tuples(SCORES, KINDS), max_size=40))
def test_pairs_are_those_counted_by_hand(drawn: list[tuple[float, str]]) -> None:
    scores = torch.tensor([score for score, _ in drawn], dtype=torch.float32)
    wanted, second = (
        torch.tensor([kind == name for _, kind in drawn], dtype=torch.bool)
        for name in ("wanted", "other")
    )
    won, pairs = auc_counts(scores, wanted, second)
    by_hand = [
        1.0 if a > b else 0.5 if a == b else 0.0
        for a, positive in drawn
        for b, another in drawn
        if (positive, another) == ("wanted", "other")
    ]
    assert (won.item(), pairs.item()) == (sum(by_hand), len(by_hand))


def test_rows_count_together_as_the_area_under_the_curve() -> None:
    rng = np.random.default_rng(0)
    wanted = rng.random((16, 128)) < 0.1
    scores = rng.normal(size=(16, 128)).astype(np.float32) + wanted
    won, pairs = auc_counts(*map(torch.from_numpy, (scores, wanted, ~wanted)))
    thresholds = np.sort(scores.flatten())[::-1]
    true = np.array([0, *(np.mean(scores[wanted] >= threshold) for threshold in thresholds)])
    false = np.array([0, *(np.mean(scores[~wanted] >= threshold) for threshold in thresholds)])
    area = np.sum(np.diff(false) * (true[1:] + true[:-1]) / 2)
    assert won.item() / pairs.item() == pytest.approx(area, rel=1e-9)
    assert 0.7 < area < 0.8  # P(N(1, 1) > N(0, 1)) = 0.76


def test_counts_are_exact_where_there_are_more_than_float32_tells_apart() -> None:
    tokens = 1 << 16
    scores = torch.arange(tokens)
    wanted = scores % 2 == 1
    won, pairs = auc_counts(scores.float(), wanted, ~wanted)
    half = tokens // 2
    assert (won.item(), pairs.item()) == (half * (half + 1) / 2, half**2)
