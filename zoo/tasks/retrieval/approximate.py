"""Approximate search of stored vectors by FAISS, with candidates scored again exactly."""

import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from zoo.errors import SourceError, UsageError
from zoo.inference.processing.search import BestScores, block_ranges, search_vectors
from zoo.inference.processing.similarity import similarity_matrix
from zoo.io.cached_files import cached_files
from zoo.io.json import dump_json
from zoo.io.progress import progress
from zoo.sentence_models.numpy_modules import unit
from zoo.sentence_models.pooling import SimilarityFunction

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from zoo.tasks.retrieval.index import StoredVectors

    Floats = NDArray[np.floating[Any]]

SearchMethod = Literal["exact", "hnsw", "int8", "binary"]
METHODS = ("exact", "hnsw", "int8", "binary")
RESCORE_MULTIPLIER = 4  # candidates for each result of int8 and binary vectors
TRAINING_ROWS = 100_000  # vectors from which the ranges of integers are found
# Neighbors of a vertex of the graph, and vertices that are visited to add and to find one; FAISS
# suggests 16 to 64 neighbors (https://github.com/facebookresearch/faiss/wiki/Indexing-1M-vectors).
NEIGHBORS = 32
VISITED_TO_ADD = 200
VISITED_TO_FIND = 64
INDEX_FILE = "index.faiss"
RECALL_QUERIES = 64  # queries that are also answered exactly


def require_faiss() -> None:
    """Check that FAISS is installed, without importing it; raises ``SourceError``."""
    if importlib.util.find_spec("faiss") is None:
        raise SourceError(
            "approximate search takes faiss-cpu, which is not installed",
            "pip install faiss-cpu, or leave --search-method out",
        )


class ApproximateSearch:
    """An index of FAISS over stored vectors.

    ``hnsw`` is a graph of neighbors (Malkov and Yashunin 2016, arXiv:1603.09320). ``int8`` and
    ``binary`` compare smaller vectors: integers of one byte, and signs, by their Hamming distance
    (Yamada et al. 2021, arXiv:2106.00882). The scores of candidates are those of the stored
    vectors.

    Args:
        vectors: the vectors, (texts, dimensions).
        similarity: function that compares vectors.
        method: the method, other than ``exact``.
        rescore_multiplier: candidates for each result of ``int8`` and ``binary``.
        digest: digest of the vectors. With it, the index is stored in ``$ZOO_HOME/indexes``, and
            read by later searches of the same vectors.
    """

    def __init__(
        self,
        vectors: "StoredVectors",
        similarity: SimilarityFunction,
        method: SearchMethod,
        rescore_multiplier: int = RESCORE_MULTIPLIER,
        digest: str | None = None,
    ) -> None:
        compares_signs = method == "binary" and similarity == "euclidean"
        if similarity == "manhattan" or compares_signs:
            raise UsageError(
                f"{method} has no {similarity} similarity, which the model compares by",
                "leave --search-method out",
            )
        self.vectors = vectors
        self.similarity = similarity
        self.method = method
        self.multiplier = 1 if method == "hnsw" else rescore_multiplier
        self.index: Any
        if digest is None:
            self.index = self._build()
        else:
            self.index = self._build_once(digest)

    def _build(self) -> Any:
        """Return a new index of the vectors."""
        import faiss
        import numpy as np

        count, dimension = self.vectors.shape
        metric = faiss.METRIC_INNER_PRODUCT
        if self.similarity == "euclidean":
            metric = faiss.METRIC_L2
        index: Any
        if self.method == "hnsw":
            index = faiss.IndexHNSWFlat(dimension, NEIGHBORS, metric)
            index.hnsw.efConstruction = VISITED_TO_ADD
        elif self.method == "int8":
            quantizer = faiss.ScalarQuantizer.QT_8bit
            index = faiss.IndexScalarQuantizer(dimension, quantizer, metric)
            step = max(count // TRAINING_ROWS, 1)
            index.train(self._encode(self.vectors[np.arange(0, count, step)]))
        else:
            index = faiss.IndexBinaryFlat(-(-dimension // 8) * 8)
        with progress("indexing", count, unit="texts") as advance:
            for block in block_ranges(count):
                codes = self._encode(self.vectors[block])
                index.add(codes)
                advance(len(codes))
        return index

    def _build_once(self, digest: str) -> Any:
        """Return the index that an earlier search of the vectors stored, or build and store it.

        Only files that zoo wrote are read: FAISS does not check what it reads.
        """
        import faiss
        from blake3 import blake3

        built: Any = None
        settings = [
            faiss.__version__,
            digest,
            self.similarity,
            self.method,
            NEIGHBORS,
            VISITED_TO_ADD,
            TRAINING_ROWS,
        ]
        key = blake3(dump_json(settings).encode()).hexdigest(16)

        def write(directory: Path) -> None:
            nonlocal built
            built = self._build()
            path = str(directory / INDEX_FILE)
            if self.method == "binary":
                faiss.write_index_binary(built, path)
            else:
                faiss.write_index(built, path)

        def read(directory: Path) -> Any:
            if built is not None:
                return built
            path = str(directory / INDEX_FILE)
            if self.method == "binary":
                return faiss.read_index_binary(path)
            return faiss.read_index(path)

        index = cached_files("indexes", key, write, read)
        if index is not None:
            return index
        return self._build() if built is None else built

    def _encode(self, vectors: "Floats") -> "NDArray[Any]":
        """Return vectors, (n, dimensions), as the index compares them."""
        import numpy as np

        if self.method == "binary":
            return np.packbits(vectors > 0, axis=1)
        if self.similarity == "cosine":
            vectors = unit(vectors)
        return np.ascontiguousarray(vectors, np.float32)

    def search(self, queries: "Floats", top_k: int) -> BestScores:
        """Return the best texts of queries, (queries, dimensions)."""
        import numpy as np

        top_k = min(top_k, len(self.vectors))
        count = min(top_k * self.multiplier, len(self.vectors))
        if self.method == "hnsw":
            self.index.hnsw.efSearch = max(VISITED_TO_FIND, 2 * count)
        _, candidates = self.index.search(self._encode(queries), count)
        best = BestScores(len(queries), top_k)
        best.scores = best.scores.astype(np.float64)
        for row, (query, numbers) in enumerate(zip(queries, candidates, strict=True)):
            # A graph may find fewer texts, in place of which there is -1.
            texts = np.sort(numbers[numbers >= 0])
            (scores,) = similarity_matrix(query[None], self.vectors[texts], self.similarity)
            order = np.argsort(-scores, kind="stable")[:top_k]
            best.scores[row, : len(order)] = scores[order]
            best.ids[row, : len(order)] = texts[order]
        return best

    def recall(self, queries: "Floats", best: BestScores) -> float:
        """Return the share of the best texts of exact search that were found for queries."""
        import numpy as np

        top_k = best.scores.shape[1]
        share = 0.0
        (exact,) = search_vectors(queries, self.vectors, top_k, self.similarity)
        for found, scores in zip(best.scores, exact.scores, strict=True):
            # Texts with equal scores are equally good; these were computed in another precision.
            tolerance = 1e-5 * max(1.0, float(np.abs(scores).max()))
            share += float((found >= scores[-1] - tolerance).mean())
        return share / len(queries)
