"""Embeddings of a corpus in temporary files, which are read again in blocks."""

import itertools
from abc import ABC, abstractmethod
from array import array
from collections.abc import Iterable, Iterator, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from zoo.inference.embed import Embed
from zoo.inference.hybrid_embed import HybridEmbed
from zoo.inference.processing.search import BLOCK, QUERIES, BestScores, block_ranges, search_vectors
from zoo.inference.processing.similarity import (
    COMPARED,
    max_sim,
    rounding_error,
    score_error,
    similarity_matrix,
)
from zoo.io.output.full_disks import close_quietly
from zoo.io.scratch import scratch_file, writing_scratch
from zoo.overrides import override
from zoo.sentence_models.pooling import Pooling, SimilarityFunction

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.floating[Any]]
    Integers = NDArray[np.integer[Any]]
    Texts = slice | Integers  # a range of texts, or their numbers
    Scored = tuple[Floats, float]  # scores of texts, (texts,), and up to which difference they tie

TOKENS = 1 << 16  # tokens of late interaction that are compared at once
WEIGHTS = 1 << 18  # weights of sparse embeddings that are compared at once


class RowFile:
    """Arrays of different lengths, one after another in a temporary file."""

    def __init__(self) -> None:
        self._file: Any = scratch_file()
        self._lengths: list[int] = []
        self._like: Any = None
        self._ends: Any = None

    def append(self, rows: "NDArray[Any]") -> None:
        """Add the rows of the next text, (rows, ...)."""
        self._like = rows[:0]
        self._ends = None
        with writing_scratch():
            self._file.write(rows.tobytes())
        self._lengths.append(len(rows))

    def close(self) -> None:
        """Remove the file."""
        close_quietly(self._file)

    @property
    def rows(self) -> "NDArray[Any]":
        """All rows, mapped to memory, (rows, ...). There is no array before the first text."""
        import numpy as np

        total = int(self.ends[-1])
        if not total:
            return self._like  # type: ignore[no-any-return]
        with writing_scratch():
            self._file.flush()
        shape = (total, *self._like.shape[1:])
        return np.memmap(self._file, self._like.dtype, "r", shape=shape)

    @property
    def ends(self) -> "Integers":
        """Number of rows up to the end of each text, (texts,)."""
        import numpy as np

        if self._ends is None:
            self._ends = np.cumsum(self._lengths)
        return self._ends  # type: ignore[no-any-return]

    def read(self, texts: "Texts") -> "tuple[NDArray[Any], Integers]":
        """Return the rows of texts, one text after another, and the number of each, (texts,)."""
        import numpy as np

        ends = self.ends
        rows = self.rows
        if isinstance(texts, slice):
            first, stop, _ = texts.indices(len(ends))
            begin = int(ends[first - 1]) if first else 0
            lengths = np.diff(ends[first:stop], prepend=begin)
            return np.asarray(rows[begin : begin + int(lengths.sum())]), lengths
        begins = np.where(texts > 0, ends[texts - 1], 0)
        lengths = ends[texts] - begins
        return np.asarray(rows[ranges(begins, lengths)]), lengths

    def blocks(self, count: int) -> Iterator[slice]:
        """Yield ranges of texts that have about a number of rows."""
        import numpy as np

        first = 0
        while first < len(self.ends):
            begin = int(self.ends[first - 1]) if first else 0
            stop = int(np.searchsorted(self.ends, begin + count, side="right"))
            stop = max(stop, first + 1)
            yield slice(first, stop)
            first = stop


def ranges(begins: "Integers", lengths: "Integers") -> "Integers":
    """Return the numbers of ranges, one range after another."""
    import numpy as np

    total = int(lengths.sum())
    shifts: Integers = np.repeat(begins - (np.cumsum(lengths) - lengths), lengths)
    return shifts + np.arange(total)


class CorpusVectors(ABC):
    """Embeddings of a corpus. As a context manager, it removes its files at the end.

    Memory depends neither on their size nor on the number of queries.
    """

    def __init__(self, function: SimilarityFunction) -> None:
        self.function = function
        self.count = 0
        self.files: list[RowFile] = []
        self.largest_norm = 0.0  # The largest norm of a text; late interaction has none.

    @abstractmethod
    def add(self, embedding: "Floats") -> None:
        """Add the embedding of the next text."""

    @abstractmethod
    def blocks(self) -> Iterator[slice]:
        """Yield the ranges of texts that are compared at once."""

    @abstractmethod
    def compare(self, queries: "list[Floats]", texts: "Texts") -> "Floats":
        """Return the similarities of queries and some texts, (queries, texts)."""

    def errors(self, queries: "list[Floats]", scores: "Floats", dtype: str) -> list[float]:
        """Return the difference up to which the scores of each query are equal."""
        import numpy as np

        largest = np.array([[self.largest_norm]], queries[0].dtype)
        errors = (rounding_error(q[None], largest, self.function, dtype) for q in queries)
        return [float(error) for (error,) in errors]

    def search(self, queries: "list[Floats]", top_k: int) -> Iterator[BestScores]:
        """Yield the best texts of each block of queries."""
        best = BestScores(len(queries), max(min(top_k, self.count), 1))
        for block in self.blocks():
            best.update(self.compare(queries, block), block.start)
        yield best

    def score_rows(self, queries: "Iterable[Floats]", dtype: str) -> "Iterator[Scored]":
        """Yield the scores of all texts for each query, (texts,); see ``Session.dtype``."""
        import numpy as np

        size = max(1, min(QUERIES, COMPARED // max(self.count, 1)))
        source = iter(queries)
        while chunk := list(itertools.islice(source, size)):
            scores = np.empty((len(chunk), self.count))
            for block in self.blocks():
                scores[:, block] = self.compare(chunk, block)
            yield from zip(scores, self.errors(chunk, scores, dtype), strict=True)

    def _norm(self, embedding: "Floats") -> float:
        import numpy as np

        order = 1 if self.function == "manhattan" else 2
        return float(np.linalg.norm(embedding.astype(np.float64), order))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        error_class: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for file in self.files:
            file.close()


def corpus_vectors(pooling: Pooling) -> CorpusVectors:
    """Return an empty corpus for the embeddings of a model."""
    vector_classes: dict[str, type[CorpusVectors]] = {
        "SparseEncoder": SparseVectors,
        "MultiVectorEncoder": TokenVectors,
    }
    vector_class = vector_classes.get(pooling.model_type, DenseVectors)
    return vector_class(pooling.similarity_fn_name)


def embedded_corpus(task: Embed) -> CorpusVectors:
    """Return an empty corpus for the embeddings of a task."""
    if not isinstance(task, HybridEmbed):
        return corpus_vectors(task.pooling)
    corpora = {name: corpus_vectors(part.pooling) for name, part in task.tasks.items()}
    return HybridVectors(corpora, task.weights_of_scores)


class DenseVectors(CorpusVectors):
    """One vector a text."""

    def __init__(self, function: SimilarityFunction) -> None:
        super().__init__(function)
        self.vectors = RowFile()
        self.files.append(self.vectors)

    @override
    def add(self, embedding: "Floats") -> None:
        self.vectors.append(embedding[None])
        self.largest_norm = max(self.largest_norm, self._norm(embedding))
        self.count += 1

    @override
    def blocks(self) -> Iterator[slice]:
        return block_ranges(self.count, BLOCK)

    @override
    def compare(self, queries: "list[Floats]", texts: "Texts") -> "Floats":
        import numpy as np

        return similarity_matrix(np.stack(queries), self.vectors.read(texts)[0], self.function)

    @override
    def search(self, queries: "list[Floats]", top_k: int) -> Iterator[BestScores]:
        import numpy as np

        if not self.count:
            yield BestScores(len(queries), 1)
            return
        yield from search_vectors(np.stack(queries), self.vectors.rows, top_k, self.function)


class TokenVectors(CorpusVectors):
    """Vectors of the tokens of each text, which MaxSim compares."""

    def __init__(self, function: SimilarityFunction) -> None:
        super().__init__(function)
        self.tokens = RowFile()
        self.files.append(self.tokens)

    @override
    def add(self, embedding: "Floats") -> None:
        import numpy as np

        if not len(embedding):  # no token is compared: a vector of zeros scores 0
            embedding = np.zeros((1, embedding.shape[1]), embedding.dtype)
        self.tokens.append(embedding)
        self.count += 1

    @override
    def blocks(self) -> Iterator[slice]:
        return self.tokens.blocks(TOKENS) if self.count else iter(())

    @override
    def compare(self, queries: "list[Floats]", texts: "Texts") -> "Floats":
        import numpy as np

        tokens, lengths = self.tokens.read(texts)
        starts = np.cumsum(lengths) - lengths
        scores = np.stack([max_sim(query, tokens, starts) for query in queries])
        if self.function == "meanmaxsim":
            scores /= np.array([max(len(query), 1) for query in queries])[:, None]
        return scores

    @override
    def errors(self, queries: "list[Floats]", scores: "Floats", dtype: str) -> list[float]:
        return [score_error(row, dtype) for row in scores]


class HybridVectors(CorpusVectors):
    """Embeddings of several representations; scores are the weighted means of theirs."""

    def __init__(self, corpora: Mapping[str, CorpusVectors], weights: Mapping[str, float]) -> None:
        first_corpus = next(iter(corpora.values()))
        super().__init__(first_corpus.function)
        self.corpora = corpora
        total = sum(weights.values())
        self.weights = {name: weight / total for name, weight in weights.items()}
        for corpus in corpora.values():
            self.files += corpus.files

    @override
    def add(self, embedding: Any) -> None:
        for name, corpus in self.corpora.items():
            corpus.add(embedding[name])
        self.count += 1

    @override
    def blocks(self) -> Iterator[slice]:
        # Texts have many vectors of tokens, which limit the size of a block.
        for corpus in self.corpora.values():
            if isinstance(corpus, TokenVectors):
                return corpus.blocks()
        return next(iter(self.corpora.values())).blocks()

    @override
    def compare(self, queries: "list[Any]", texts: "Texts") -> "Floats":
        import numpy as np

        parts = []
        for name, corpus in self.corpora.items():
            part_queries = [query[name] for query in queries]
            scores = corpus.compare(part_queries, texts).astype(np.float64)
            parts.append(self.weights[name] * scores)
        total: Floats = np.sum(parts, axis=0)
        return total

    @override
    def errors(self, queries: "list[Any]", scores: "Floats", dtype: str) -> list[float]:
        return [score_error(row, dtype) for row in scores]


class SparseVectors(CorpusVectors):
    """Weights of the words of a vocabulary; only those that are not zero are kept.

    Queries are compared by an inverted index of a block: only the texts that share a word with a
    query are read for it.
    """

    def __init__(self, function: SimilarityFunction) -> None:
        super().__init__(function)
        self.words = RowFile()
        self.weights = RowFile()
        self.norms = array("d")
        self.files += [self.words, self.weights]

    @override
    def add(self, embedding: "Floats") -> None:
        import numpy as np

        present = np.flatnonzero(embedding)
        self.add_weights(present, embedding[present])

    def add_weights(self, words: "Integers", weights: "Floats") -> None:
        """Add the weights of some words of the next text, (words,) each; others are 0."""
        import numpy as np

        self.words.append(words.astype(np.int32))
        self.weights.append(weights)
        self.norms.append(self._norm(weights))
        self.largest_norm = max(self.largest_norm, self.norms[-1])
        self.count += 1

    @override
    def blocks(self) -> Iterator[slice]:
        return self.words.blocks(WEIGHTS) if self.count else iter(())

    @override
    def compare(self, queries: "list[Floats]", texts: "Texts") -> "Floats":
        import numpy as np

        words, lengths = self.words.read(texts)
        is_query_word = np.zeros(len(queries[0]), bool)
        for query in queries:
            is_query_word |= query != 0
        order = np.flatnonzero(is_query_word[words])
        order = order[np.argsort(words[order], kind="stable")]
        words = words[order]
        weights = self.weights.read(texts)[0][order].astype(np.float64)
        owners = np.repeat(np.arange(len(lengths)), lengths)[order]
        shared = np.empty((len(queries), len(lengths)))
        norms = []
        for row, query in zip(shared, queries, strict=True):
            query_words = np.flatnonzero(query)
            norms.append(self._norm(query[query_words]))
            begins = np.searchsorted(words, query_words)
            counts = np.searchsorted(words, query_words, side="right") - begins
            places = ranges(begins, counts)
            query_weights = np.repeat(query[query_words].astype(np.float64), counts)
            text_weights = weights[places]
            if self.function == "manhattan":
                difference = abs(query_weights - text_weights)
                values = abs(query_weights) + abs(text_weights) - difference
            else:
                values = query_weights * text_weights
            row[:] = np.bincount(owners[places], values, minlength=len(lengths))
        return self._similarity(shared, np.array(norms)[:, None], np.frombuffer(self.norms)[texts])

    def _similarity(self, shared: "Floats", queries: "Floats", texts: "Floats") -> "Floats":
        """Return similarities from norms and what the words that are shared add to them."""
        import numpy as np

        match self.function:
            case "cosine":
                lengths = queries * texts
                return np.divide(shared, lengths, where=lengths > 0, out=np.zeros_like(shared))
            case "euclidean":
                squares: Floats = np.maximum(queries**2 + texts**2 - 2 * shared, 0)
                return -np.sqrt(squares)
            case "manhattan":
                return shared - queries - texts
        return shared
