"""Embeddings of a corpus in a temporary file, which is read again in blocks."""

import tempfile
from abc import ABC, abstractmethod
from collections.abc import Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from zoo.inference.processing.search import TopK, block_ranges, search_vectors
from zoo.inference.processing.similarity import max_sim
from zoo.tokenizers.pooling import Pooling, SimilarityFunction

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.floating[Any]]

TOKENS = 1 << 16  # tokens of late interaction that are compared at once
ROWS = 1024  # sparse embeddings that are compared at once


class CorpusVectors(ABC):
    """Embeddings of a corpus. As a context manager, it removes its files at the end."""

    def __init__(self, function: SimilarityFunction) -> None:
        self.function = function
        self.count = 0
        self._files: list[Any] = []

    @abstractmethod
    def add(self, embedding: "Floats") -> None:
        """Add the embedding of the next text."""

    @abstractmethod
    def search(self, queries: "list[Floats]", top_k: int) -> Iterator[TopK]:
        """Yield the best texts of each block of queries."""

    def _file(self) -> Any:
        file = tempfile.TemporaryFile(prefix="zoo-search-")  # noqa: SIM115 (closed at the end)
        self._files.append(file)
        return file

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for file in self._files:
            file.close()


def corpus_vectors(pooling: Pooling) -> CorpusVectors:
    """Return an empty corpus for the embeddings of a model."""
    kinds: dict[str, type[CorpusVectors]] = {
        "SparseEncoder": SparseVectors,
        "MultiVectorEncoder": TokenVectors,
    }
    return kinds.get(pooling.model_type, DenseVectors)(pooling.similarity_fn_name)


class DenseVectors(CorpusVectors):
    """One vector a text."""

    def __init__(self, function: SimilarityFunction) -> None:
        super().__init__(function)
        self._file_of_vectors = self._file()
        self._like: Any = None

    def add(self, embedding: "Floats") -> None:
        """See ``CorpusVectors``."""
        self._like = embedding
        self._file_of_vectors.write(embedding.tobytes())
        self.count += 1

    def search(self, queries: "list[Floats]", top_k: int) -> Iterator[TopK]:
        """See ``CorpusVectors``."""
        import numpy as np

        if not self.count:
            yield TopK(len(queries), 1)
            return
        self._file_of_vectors.flush()
        shape = (self.count, *self._like.shape)
        stored: Any = np.memmap(self._file_of_vectors, self._like.dtype, "r", shape=shape)
        yield from search_vectors(np.stack(queries), stored, top_k, self.function)


class TokenVectors(CorpusVectors):
    """Vectors of the tokens of each text, which MaxSim compares."""

    def __init__(self, function: SimilarityFunction) -> None:
        super().__init__(function)
        self._file_of_vectors = self._file()
        self._lengths: list[int] = []
        self._like: Any = None

    def add(self, embedding: "Floats") -> None:
        """See ``CorpusVectors``."""
        import numpy as np

        if not len(embedding):  # no token is compared: a vector of zeros scores 0
            embedding = np.zeros((1, embedding.shape[1]), embedding.dtype)
        self._like = embedding
        self._file_of_vectors.write(embedding.tobytes())
        self._lengths.append(len(embedding))
        self.count += 1

    def search(self, queries: "list[Floats]", top_k: int) -> Iterator[TopK]:
        """See ``CorpusVectors``."""
        import numpy as np

        best = TopK(len(queries), max(min(top_k, self.count), 1))
        if not self.count:
            yield best
            return
        self._file_of_vectors.flush()
        shape = (sum(self._lengths), self._like.shape[1])
        stored: Any = np.memmap(self._file_of_vectors, self._like.dtype, "r", shape=shape)
        ends = np.cumsum(self._lengths)
        first = 0
        while first < self.count:
            begin = int(ends[first - 1]) if first else 0
            last = max(int(np.searchsorted(ends, begin + TOKENS, side="right")), first + 1)
            tokens = np.asarray(stored[begin : int(ends[last - 1])])
            starts = np.concatenate([[begin], ends[first : last - 1]]) - begin
            scores = np.stack([max_sim(query, tokens, starts) for query in queries])
            if self.function == "meanmaxsim":
                scores /= np.array([len(query) for query in queries])[:, None]
            best.update(scores, first)
            first = last
        yield best


class SparseVectors(CorpusVectors):
    """Weights of the words of a vocabulary; only those that are not zero are kept."""

    def __init__(self, function: SimilarityFunction) -> None:
        super().__init__(function)
        self._numbers, self._weights = self._file(), self._file()
        self._lengths: list[int] = []
        self._like: Any = None

    def add(self, embedding: "Floats") -> None:
        """See ``CorpusVectors``."""
        import numpy as np

        self._like = embedding
        present = np.flatnonzero(embedding).astype(np.int32)
        self._numbers.write(present.tobytes())
        self._weights.write(embedding[present].tobytes())
        self._lengths.append(len(present))
        self.count += 1

    def search(self, queries: "list[Floats]", top_k: int) -> Iterator[TopK]:
        """See ``CorpusVectors``."""
        import numpy as np

        best = TopK(len(queries), max(min(top_k, self.count), 1))
        vectors = np.stack(queries) if queries else np.empty((0, 0))
        for first, block in self._blocks():
            if self.function == "dot":  # words that no query has do not count
                used = np.flatnonzero(vectors.any(axis=0))
                best.update(vectors[:, used] @ block[:, used].T, first)
                continue
            for found in search_vectors(vectors, block, len(block), self.function):
                scores = np.empty_like(found.scores)
                np.put_along_axis(scores, found.ids, found.scores, axis=1)
                best.update(scores, first)
        yield best

    def _blocks(self) -> "Iterator[tuple[int, Floats]]":
        """Yield the number of the first text of each block, and their vectors."""
        import numpy as np

        self._numbers.seek(0)
        self._weights.seek(0)
        for block in block_ranges(self.count, ROWS, ROWS):
            lengths = self._lengths[block]
            count = sum(lengths)
            numbers = np.frombuffer(self._numbers.read(count * 4), np.int32)
            size = self._like.dtype.itemsize
            weights = np.frombuffer(self._weights.read(count * size), self._like.dtype)
            dense = np.zeros((len(lengths), len(self._like)), self._like.dtype)
            dense[np.repeat(np.arange(len(lengths)), lengths), numbers] = weights
            yield block.start, dense
