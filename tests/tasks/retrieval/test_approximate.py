"""Approximate search, against exact search and ``semantic_search_faiss`` of the same vectors."""

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from zoo.errors import UsageError
from zoo.tasks.retrieval.approximate import ApproximateSearch, SearchMethod
from zoo.tasks.retrieval.index import StoredVectors

pytest.importorskip("faiss")
TOP_K = 10
Floats = NDArray[np.float32]


@pytest.fixture(scope="module")
def vectors() -> tuple[Floats, Floats]:
    """Texts in clusters, and queries near some of them."""
    rng = np.random.default_rng(0)
    centers = rng.standard_normal((40, 64))
    texts = centers[rng.integers(40, size=2000)] + 0.5 * rng.standard_normal((2000, 64))
    queries = texts[:30] + 0.3 * rng.standard_normal((30, 64))
    return texts.astype(np.float32), queries.astype(np.float32)


def best_texts(queries: Floats, texts: Floats, similarity: str) -> NDArray[Any]:
    """Return the numbers of the best texts, by a formula in float64."""
    a = queries.astype(np.float64)
    b = texts.astype(np.float64)
    if similarity == "cosine":
        a /= np.linalg.norm(a, axis=1, keepdims=True)
        b /= np.linalg.norm(b, axis=1, keepdims=True)
    scores = a @ b.T
    if similarity == "euclidean":
        scores = -np.linalg.norm(a[:, None] - b, axis=2)
    return np.argsort(-scores, axis=1, kind="stable")[:, :TOP_K]


def shared(found: NDArray[Any], expected: NDArray[Any]) -> float:
    """Return the share of expected texts that were found."""
    shares = [np.isin(e, f).mean() for f, e in zip(found, expected, strict=True)]
    return float(np.mean(shares))


@pytest.mark.long
@pytest.mark.parametrize("similarity", ["cosine", "dot", "euclidean"])
@pytest.mark.parametrize(("method", "least"), [("hnsw", 0.95), ("int8", 0.99), ("binary", 0.6)])
def test_recall_is_that_of_a_formula(
    vectors: tuple[Floats, Floats], similarity: Any, method: SearchMethod, least: float
) -> None:
    texts, queries = vectors
    stored = StoredVectors([texts], None, 64)
    if (method, similarity) == ("binary", "euclidean"):
        with pytest.raises(UsageError, match="binary has no euclidean similarity"):
            ApproximateSearch(stored, similarity, method)
        return
    index = ApproximateSearch(stored, similarity, method)
    best = index.search(queries, TOP_K)
    recall = shared(best.ids, best_texts(queries, texts, similarity))
    assert recall >= least
    assert index.recall(queries, best) == pytest.approx(recall)


def test_more_candidates_lose_less(vectors: tuple[Floats, Floats]) -> None:
    texts, queries = vectors
    stored = StoredVectors([texts[:700], texts[700:]], None, 64)
    expected = best_texts(queries, texts, "cosine")
    recalls = []
    for multiplier in (1, 4, 200):
        index = ApproximateSearch(stored, "cosine", "binary", multiplier)
        recalls.append(shared(index.search(queries, TOP_K).ids, expected))
    assert recalls == sorted(recalls)
    assert recalls[-1] == 1, "all texts are scored again"


def test_candidates_are_those_of_the_library(vectors: tuple[Floats, Floats]) -> None:
    """``semantic_search_faiss`` scores the same candidates of signs again by the signs."""
    library: Any = pytest.importorskip("sentence_transformers.util.quantization")
    texts, queries = vectors
    bits = library.quantize_embeddings(texts, "ubinary")
    hits, _ = library.semantic_search_faiss(
        queries, corpus_embeddings=bits, corpus_precision="ubinary", top_k=TOP_K,
        rescore=True, rescore_multiplier=200,
    )  # fmt: skip
    index = ApproximateSearch(StoredVectors([bits], None, 64), "dot", "binary", 200)
    best = index.search(queries, TOP_K)
    # The library's bits are 0 and 1 there: 2 q.b - sum(q) is the product with signs.
    theirs = np.array([[hit["score"] for hit in row] for row in hits])
    expected = 2 * theirs - queries.astype(np.float64).sum(1, keepdims=True)
    np.testing.assert_allclose(best.scores, expected, rtol=1e-4, atol=1e-4)


def test_a_model_that_compares_otherwise_is_refused(vectors: tuple[Floats, Floats]) -> None:
    with pytest.raises(UsageError, match="hnsw has no manhattan similarity"):
        ApproximateSearch(StoredVectors([vectors[0]], None, 64), "manhattan", "hnsw")
