"""NDCG, MAP and MRR with ties, and best thresholds of pairs, against their definitions."""

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zoo.metrics.pairs import NAMES, pair_classification_metrics
from zoo.metrics.retrieval import (
    RANKING_NAMES,
    expected_ranking_scores,
    ranking_scores,
)

LEVELS = st.lists(st.integers(0, 2), min_size=1, max_size=6)
GAINS = st.dictionaries(st.integers(0, 5), st.integers(-1, 3), min_size=1, max_size=4)


def ranked_scores(order: Sequence[int], gains: Mapping[int, int]) -> dict[str, float]:
    """Return the metrics of a list without ties, from their definitions."""
    ranks = sorted(1 + order.index(text) for text, gain in gains.items() if gain > 0)
    precisions = [(k + 1) / rank for k, rank in enumerate(ranks)]
    gained = sum(max(gains.get(t, 0), 0) / np.log2(k + 2) for k, t in enumerate(order[:10]))
    best = sorted((max(gain, 0) for gain in gains.values()), reverse=True)[:10]
    return {
        "ndcg_at_10": gained / sum(gain / np.log2(k + 2) for k, gain in enumerate(best)),
        "mrr_at_10": 1 / ranks[0] if ranks[0] <= 10 else 0.0,
        "map": float(np.mean(precisions)),
        "map_at_100": sum(p for p, r in zip(precisions, ranks, strict=True) if r <= 100)
        / min(len(ranks), 100),
        "accuracy": float(ranks[0] == 1),
        **{f"recall_at_{k}": sum(r <= k for r in ranks) / len(ranks) for k in (1, 5, 10, 100)},
    }


@settings(deadline=None)
@given(LEVELS, GAINS)
def test_a_metric_is_its_mean_over_the_orders_of_ties(
    levels: list[int], judged: dict[int, int]
) -> None:
    gains = {index % len(levels): gain for index, gain in judged.items()}
    gains[0] = 2  # one is relevant
    orders = [
        order
        for order in itertools.permutations(range(len(levels)))
        if [levels[k] for k in order] == sorted(levels, reverse=True)
    ]
    each = [list(ranked_scores(order, gains).values()) for order in orders]
    found = expected_ranking_scores(np.array(levels, float), gains)
    assert found == pytest.approx(np.mean(each, axis=0).tolist())
    assert tuple(ranked_scores(orders[0], gains)) == RANKING_NAMES


def test_cutoffs_in_longer_lists() -> None:
    """Relevant texts around the ranks 10 and 100, among 150 without ties and in groups of ten."""
    rng = np.random.default_rng(0)
    gains = dict.fromkeys([3, 8, 11, 60, 99, 100, 130], 1)
    similarities = -np.arange(150.0)
    expected = ranked_scores(range(150), gains)
    assert expected_ranking_scores(similarities, gains) == pytest.approx([*expected.values()])
    groups = np.floor(similarities / 10)
    orders = [np.lexsort((rng.random(150), -groups)).tolist() for _ in range(4000)]
    each = [list(ranked_scores(order, gains).values()) for order in orders]
    means = np.mean(each, axis=0).tolist()
    assert expected_ranking_scores(groups, gains) == pytest.approx(means, abs=0.02)


def test_ndcg_and_map_are_those_of_scikit_learn() -> None:
    """NDCG with ties and grades, and average precision without ties."""
    metrics = pytest.importorskip("sklearn.metrics")
    rng = np.random.default_rng(1)
    scores, grades = rng.integers(0, 6, (8, 30)).astype(float), rng.integers(0, 4, (8, 30))
    gains = [dict(enumerate(row.tolist())) for row in grades]
    found = ranking_scores([(row, 0.0) for row in scores], gains)[:, 0]
    expected = [metrics.ndcg_score([g], [s], k=10) for g, s in zip(grades, scores, strict=True)]
    assert found.tolist() == pytest.approx(expected)
    distinct = rng.normal(size=(8, 30))
    found = ranking_scores([(row, 0.0) for row in distinct], gains)[:, 2]
    expected = [
        metrics.average_precision_score(g > 0, s) for g, s in zip(grades, distinct, strict=True)
    ]
    assert found.tolist() == pytest.approx(expected)


def test_similarities_that_differ_by_rounding_are_tied() -> None:
    exact = expected_ranking_scores(np.array([1.0, 1.0, 0.0]), {1: 1})
    near = np.array([1.0 + 1e-9, 1.0, 0.0])
    assert expected_ranking_scores(near, {1: 1}, 1e-7) == exact
    assert expected_ranking_scores(near, {1: 1}) != exact
    assert np.isnan(expected_ranking_scores(np.array([np.nan, 1.0]), {1: 1})).tolist() == [True] * 9


@pytest.mark.parametrize("rounded", [False, True])
def test_thresholds_are_those_of_the_library(rounded: bool) -> None:
    """Of BinaryClassificationEvaluator and scikit-learn, with and without ties."""
    evaluation: Any = pytest.importorskip("sentence_transformers.sentence_transformer.evaluation")
    metrics = pytest.importorskip("sklearn.metrics")
    kind = evaluation.BinaryClassificationEvaluator
    rng = np.random.default_rng(2)
    labels = rng.random(60) < 0.4
    scores = rng.normal(size=60) + labels
    scores = np.round(scores, 1) if rounded else scores
    accuracy, threshold = kind.find_best_acc_and_threshold(scores, labels, True)
    f1, precision, recall, f1_threshold = kind.find_best_f1_and_threshold(scores, labels, True)
    expected = {
        "average_precision": metrics.average_precision_score(labels, scores),
        "accuracy": accuracy,
        "accuracy_threshold": threshold,
        "f1": f1,
        "precision": precision,
        "recall": recall,
        "f1_threshold": f1_threshold,
        "matthews_correlation": metrics.matthews_corrcoef(labels, scores >= f1_threshold),
        "area_under_curve": metrics.roc_auc_score(labels, scores),
    }
    assert pair_classification_metrics(scores, labels) == pytest.approx(expected)
    assert tuple(expected) == NAMES


def test_labels_of_one_kind() -> None:
    scores = np.array([0.5, 0.1, 0.3])
    found = pair_classification_metrics(scores, np.zeros(3, bool))
    assert found["accuracy"] == 1 and found["accuracy_threshold"] > 0.5 and found["f1"] == 0
    assert np.isnan(found["average_precision"])
    found = pair_classification_metrics(scores, np.ones(3, bool))
    assert (found["accuracy"], found["accuracy_threshold"], found["f1"]) == (1, 0.1, 1)
