"""Exact search for the most similar vectors, in blocks of the corpus."""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Protocol

from zoo.errors import UsageError
from zoo.inference.processing.similarity import similarity_matrix
from zoo.sentence_models.numpy_modules import unit
from zoo.sentence_models.pooling import SimilarityFunction

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.floating[Any]]

# Vectors of the corpus that are compared at once.
FIRST_BLOCK = 512
BLOCK = 8192
QUERIES = 256  # queries that are compared at once


class VectorRows(Protocol):
    """Vectors that are read in blocks: an array, or what decodes rows of a file."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Number of vectors, and of dimensions."""

    def __len__(self) -> int: ...

    def __getitem__(self, rows: slice, /) -> Any: ...


class BestScores:
    """The best scores of several queries among the texts that were compared so far.

    Equal scores are in the order of the corpus.
    """

    def __init__(self, queries: int, count: int) -> None:
        import numpy as np

        # Scores and numbers of texts in the corpus, (queries, count), the best first. Missing
        # texts have the score negative infinity and the number -1.
        self.scores = np.full((queries, count), -np.inf, np.float32)
        self.ids = np.full((queries, count), -1, np.int64)

    def update(self, scores: "Floats", first: int) -> None:
        """Take the scores of a block of the corpus, (queries, texts)."""
        import numpy as np

        queries, count = self.scores.shape
        if scores.dtype != self.scores.dtype:
            # The similarity is computed in float64.
            self.scores = self.scores.astype(scores.dtype)
        query_numbers, columns = np.nonzero(scores > self.scores[:, -1:])
        if not len(query_numbers):
            return
        # The best so far and the new ones in one list, sorted by query, score and place in the
        # corpus. The first ``count`` of each query are its best.
        owners = np.concatenate([np.repeat(np.arange(queries), count), query_numbers])
        values = np.concatenate([self.scores.reshape(-1), scores[query_numbers, columns]])
        ids = np.concatenate([self.ids.reshape(-1), columns + first])
        order = np.lexsort((ids, -values, owners))
        starts = np.searchsorted(owners[order], np.arange(queries))
        best = order[starts[:, None] + np.arange(count)]
        self.scores = values[best]
        self.ids = ids[best]

    def results(self) -> list[list[dict[str, Any]]]:
        """Return for each query ``corpus_id`` and ``score`` of the best texts, best first."""
        results = []
        for ids, scores in zip(self.ids.tolist(), self.scores.tolist(), strict=True):
            texts = []
            for text_id, score in zip(ids, scores, strict=True):
                if text_id >= 0:
                    texts.append({"corpus_id": text_id, "score": score})
            results.append(texts)
        return results


def block_ranges(count: int, first: int = FIRST_BLOCK, largest: int = BLOCK) -> Iterator[slice]:
    """Yield ranges that cover ``count`` vectors; they double in size up to a limit."""
    start = 0
    size = first
    while start < count:
        yield slice(start, min(start + size, count))
        start = start + size
        size = min(2 * size, largest)


def semantic_search(
    query_embeddings: "Floats",
    corpus_embeddings: "Floats",
    *,
    top_k: int = 10,
    similarity: SimilarityFunction = "cosine",
) -> list[list[dict[str, Any]]]:
    """Return the most similar vectors of a corpus for each query, by exact search.

    Embeddings are (queries, dimensions) and (texts, dimensions); the corpus may be memory-mapped.
    """
    results = []
    for best in search_vectors(query_embeddings, corpus_embeddings, top_k, similarity):
        results += best.results()
    return results


def search_vectors(
    queries: "Floats", corpus: VectorRows, top_k: int, similarity: SimilarityFunction
) -> Iterator[BestScores]:
    """Yield the best vectors of each block of queries; see ``semantic_search``.

    Only scores above the worst of a query's best so far are sorted. They are few after the first
    blocks, so that nearly all of the time is in the matrix products.
    """
    import numpy as np

    if top_k < 1:
        raise UsageError(f"{top_k} results are not possible", "give 1 or more")
    if queries.shape[1:] != corpus.shape[1:]:
        raise UsageError(
            f"queries have {queries.shape[1]} dimensions, and the corpus {corpus.shape[1]}",
            "embed both with one model, and cut both at the same dimension",
        )
    is_product = similarity in ("cosine", "dot")
    size = min(top_k, len(corpus)) or 1
    for start in range(0, len(queries), QUERIES):
        part = queries[start : start + QUERIES]
        if similarity == "cosine":
            part = unit(part)
        best = BestScores(len(part), size)
        for block in block_ranges(len(corpus)):
            vectors = np.asarray(corpus[block])
            if not is_product:
                best.update(similarity_matrix(part, vectors, similarity), block.start)
                continue
            scores = part @ vectors.T
            if similarity == "cosine":
                squares = np.einsum("ij,ij->i", vectors, vectors)
                inverse: Floats = np.divide(
                    1, np.sqrt(squares), where=squares > 0, out=np.zeros_like(squares)
                )
                scores *= inverse
            best.update(scores, block.start)
        yield best


def rank(scores: Iterable[float], top_k: int | None = None) -> list[tuple[int, float]]:
    """Return (index, score) of the best scores, best first; equal ones in their order."""
    ranking = sorted(enumerate(scores), key=lambda item: -item[1])
    return ranking if top_k is None else ranking[:top_k]
