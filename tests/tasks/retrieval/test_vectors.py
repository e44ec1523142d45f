"""Vectors of a corpus on disk: the products of dense ones, and memory that does not grow."""

import tracemalloc
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from zoo.tasks.retrieval import vectors
from zoo.tasks.retrieval.vectors import CorpusVectors, DenseVectors, SparseVectors, TokenVectors

Floats = NDArray[np.float32]
FUNCTIONS: tuple[Any, ...] = ("dot", "cosine", "euclidean", "manhattan")
WORDS = 500


def sparse(count: int, seed: int, words: int = WORDS, active: int = 12) -> Iterator[Floats]:
    """Yield vectors with a few weights of both signs; the third has none."""
    rng = np.random.default_rng(seed)
    for k in range(count):
        vector = np.zeros(words, np.float32)
        if k != 2:
            vector[rng.integers(words, size=active)] = rng.standard_normal(active)
        yield vector


def by_hand(first: Floats, second: Floats, function: str) -> float:
    """Return the similarity of two vectors, in float64."""
    a, b = first.astype(np.float64), second.astype(np.float64)
    lengths = np.sqrt((a @ a) * (b @ b))
    values = {
        "dot": a @ b,
        "cosine": a @ b / lengths if lengths else 0.0,
        "euclidean": -np.sqrt(((a - b) ** 2).sum()),
        "manhattan": -abs(a - b).sum(),
    }
    return float(values[function])


@pytest.mark.parametrize("kind", [SparseVectors, DenseVectors])
@pytest.mark.parametrize("function", FUNCTIONS)
def test_scores_are_those_of_dense_vectors(
    monkeypatch: pytest.MonkeyPatch, kind: type[CorpusVectors], function: Any
) -> None:
    """Of all texts, of the best, and of some in any order, in blocks of few texts."""
    monkeypatch.setattr(vectors, "WEIGHTS", 60)
    monkeypatch.setattr(vectors, "QUERIES", 3)
    queries, texts = list(sparse(7, 1)), list(sparse(40, 2))
    expected = np.array([[by_hand(a, b, function) for b in texts] for a in queries])
    with kind(function) as stored:
        for text in texts:
            stored.add(text)
        rows = [row for row, _ in stored.score_rows(queries, "float32")]
        np.testing.assert_allclose(rows, expected, rtol=1e-6, atol=1e-6)
        chosen = np.array([39, 2, 0, 7])
        found = stored.compare(queries[:1], chosen)
        np.testing.assert_allclose(found, expected[:1, chosen], rtol=1e-6, atol=1e-6)
        (best,) = stored.search(queries, 5)
        wanted = -np.sort(-expected, axis=1)[:, :5]
        np.testing.assert_allclose(best.scores, wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.long
def test_memory_grows_neither_with_queries_nor_with_texts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """And is a small part of dense vectors."""
    monkeypatch.setattr(vectors, "WEIGHTS", 4096)
    monkeypatch.setattr(vectors, "QUERIES", 10)
    words, peaks = 30_000, {}
    for texts, queries in ((200, 20), (200, 60), (1200, 20)):
        with SparseVectors("dot") as stored:
            tracemalloc.start()
            for text in sparse(texts, 3, words, 80):
                stored.add(text)
            for row, _ in stored.score_rows(sparse(queries, 4, words, 30), "float32"):
                assert row.shape == (texts,)
            peaks[texts, queries] = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
    assert peaks[200, 60] < 1.05 * peaks[200, 20]
    assert peaks[1200, 20] < 0.03 * 1200 * words * 4
    assert peaks[1200, 20] < 1.3 * peaks[200, 20]


def test_late_interaction_by_hand() -> None:
    """Of texts and queries with few tokens or none."""
    rng = np.random.default_rng(0)
    texts = [rng.standard_normal((k % 4, 3)).astype(np.float32) for k in range(9)]
    queries = [rng.standard_normal((k, 3)).astype(np.float32) for k in (2, 0, 3)]
    expected = [
        [sum(max(map(float, text @ token), default=0.0) for token in query) for text in texts]
        for query in queries
    ]
    with TokenVectors("maxsim") as stored:
        for text in texts:
            stored.add(text)
        rows = [row for row, _ in stored.score_rows(queries, "float32")]
        np.testing.assert_allclose(rows, expected, rtol=1e-5, atol=1e-6)
        some = stored.compare(queries[:1], np.array([8, 0, 3]))[0]
        np.testing.assert_allclose(some, np.array(expected[0])[[8, 0, 3]], rtol=1e-5, atol=1e-6)
