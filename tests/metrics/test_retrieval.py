"""Ranking metrics with ties, against means over all orders of the tied texts."""

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from zoo.inference.processing.similarity import compare_pairs, similarity_matrix, similarity_rows
from zoo.metrics.retrieval import (
    CUTOFFS,
    NAMES,
    expected_reciprocal_rank,
    expected_scores,
    retrieval_scores,
    triplet_accuracy,
)
from zoo.sentence_models.pooling import SIMILARITIES, SimilarityFunction

FUNCTIONS = SIMILARITIES["SentenceTransformer"]
Floats = NDArray[np.floating[Any]]


def scores_of(
    anchors: Floats,
    texts: Floats,
    relevant: Sequence[Sequence[int]],
    function: SimilarityFunction = "cosine",
    dtype: str = "float32",
) -> NDArray[np.float64]:
    return retrieval_scores(similarity_rows(anchors, texts, function, dtype), relevant)


def accuracy_of(
    anchors: Floats, texts: Floats, negatives: Floats, function: SimilarityFunction
) -> float:
    return triplet_accuracy(*compare_pairs(anchors, texts, negatives, function))


def ranked_scores(order: Sequence[int], relevant: Sequence[int]) -> list[float]:
    """Return the metrics of a list without ties, from their definitions."""
    ranks = [1 + order.index(text) for text in relevant]
    recalls = [sum(rank <= cutoff for rank in ranks) / len(ranks) for cutoff in CUTOFFS]
    return [1 / min(ranks), float(min(ranks) == 1), *recalls]


@settings(deadline=None)
@given(
    st.lists(st.integers(0, 2), min_size=1, max_size=6),
    st.sets(st.integers(0, 5), min_size=1, max_size=3),
)
def test_a_metric_is_its_mean_over_the_orders_of_ties(levels: list[int], wanted: set[int]) -> None:
    relevant = sorted({index % len(levels) for index in wanted})
    orders = [
        order
        for order in itertools.permutations(range(len(levels)))
        if [levels[k] for k in order] == sorted(levels, reverse=True)
    ]
    expected = np.mean([ranked_scores(order, relevant) for order in orders], axis=0)
    assert expected_scores(np.array(levels, float), relevant) == pytest.approx(expected.tolist())


def test_the_expected_reciprocal_rank_is_a_difference_of_harmonic_numbers() -> None:
    for before, tied in ((0, 1), (0, 8), (3, 5), (10, 1000)):
        harmonic = sum(1 / rank for rank in range(before + 1, before + tied + 1))
        assert expected_reciprocal_rank(before, tied) == pytest.approx(harmonic / tied, rel=1e-12)


def test_ranks_worked_by_hand() -> None:
    """The anchor (1, 0) has its texts at the ranks 2 and 4; (0, 1) has its own at rank 1 or 2."""
    angles = np.radians([0, 20, 40, 60, 90, 90])
    texts = np.stack([np.cos(angles), np.sin(angles)], 1)
    scores = scores_of(np.eye(2), texts, [[1, 3], [5]])
    assert NAMES == ("mrr", "accuracy", "recall_at_1", "recall_at_5", "recall_at_10")
    assert scores.tolist() == [[1 / 2, 0, 0, 1, 1], [3 / 4, 1 / 2, 1 / 2, 1, 1]]


@pytest.mark.parametrize("function", FUNCTIONS)
def test_reciprocal_ranks_are_those_of_scikit_learn(function: SimilarityFunction) -> None:
    """Its label ranking average precision is the mean of 1 / rank where one label is true."""
    metrics = pytest.importorskip("sklearn.metrics")
    rng = np.random.default_rng(1)
    anchors, texts = rng.normal(size=(2, 30, 4)).astype(np.float32)
    scores = scores_of(anchors, texts, [[k] for k in range(30)], function)
    similarity = similarity_matrix(anchors, texts, function)
    mean = metrics.label_ranking_average_precision_score(np.eye(30), similarity)
    assert scores[:, 0].mean() == pytest.approx(mean)
    accuracy = metrics.top_k_accuracy_score(range(30), similarity, k=5, labels=range(30))
    assert scores[:, NAMES.index("recall_at_5")].mean() == pytest.approx(accuracy)


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("noise", [0.0, 1e-7])
def test_a_constant_encoder_finds_by_chance(function: SimilarityFunction, noise: float) -> None:
    """Even if rounding puts each text next to its own anchor."""
    count = 8
    rng = np.random.default_rng(2)
    constant = 30 * rng.normal(size=64)
    rows = constant * (1 + noise * rng.normal(size=(count, 64)))
    vectors = rows.astype(np.float32)
    scores = scores_of(vectors, vectors, [[k] for k in range(count)], function)
    harmonic = sum(1 / rank for rank in range(1, count + 1))
    expected = [harmonic / count, 1 / count, 1 / count, 5 / count, 1]
    assert scores == pytest.approx(np.tile(expected, (count, 1)))
    assert accuracy_of(vectors, vectors, vectors[::-1], function) == 0.5


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "int8"])
def test_rounding_is_of_the_dtype_of_the_computation(dtype: str) -> None:
    """Embeddings are float32 after a computation in lower precision, whose noise is no order."""
    rng = np.random.default_rng(2)
    rows = rng.normal(size=64) + 2**-8 * rng.normal(size=(8, 64))
    vectors = rows.astype(np.float32)
    relevant = [[k] for k in range(8)]
    assert scores_of(vectors, vectors, relevant)[:, 0].min() > 0.9  # taken for an order
    scores = scores_of(vectors, vectors, relevant, dtype=dtype)
    harmonic = sum(1 / rank for rank in range(1, 9))
    assert scores[:, 0] == pytest.approx(harmonic / 8)
    far = np.array([[1, 0], [1, 0.5]], np.float32)
    assert scores_of(far[:1], far, [[0]], dtype=dtype)[0, 0] == 1


def test_similarities_that_differ_by_more_than_rounding_are_ranked() -> None:
    texts = np.array([[1, 0], [1, 2e-3]], np.float32)  # cosines with (1, 0) differ by 2e-6
    assert scores_of(texts[:1], texts, [[0]])[0, 0] == 1
    assert scores_of(texts[:1], texts, [[1]])[0, 0] == 0.5


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_similarity_that_is_not_finite_gives_no_score(value: float) -> None:
    assert np.isnan(expected_scores(np.array([0.5, value]), [0])).all()
    vectors = np.array([[1.0, value]])
    assert np.isnan(accuracy_of(vectors, np.ones((1, 2)), np.ones((1, 2)), "dot"))


def test_triplets_by_hand() -> None:
    """Nearer, tied, farther: one and a half of three."""
    anchors = np.tile([[1.0, 0.0]], (3, 1))
    texts, negatives = np.array([[2, 0], [0, 1], [0, 1]]), np.array([[0, 1], [0, 3], [1, 0]])
    assert accuracy_of(anchors, texts, negatives, "cosine") == pytest.approx(1.5 / 3)
    # by distance, the second text is nearer than its negative
    assert accuracy_of(anchors, texts, negatives, "euclidean") == pytest.approx(2 / 3)
