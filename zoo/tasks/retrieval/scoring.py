"""Scores of texts for queries, by the score of each kind of model."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from zoo.errors import UsageError
from zoo.inference.processing.records import TextExample
from zoo.inference.processing.similarity import rounding_error as similarity_error
from zoo.inference.processing.similarity import (
    score_error,
    similarity_matrix,
    similarity_rows,
    text_similarity,
)
from zoo.inference.task_checks import require_head
from zoo.overrides import override
from zoo.tasks.reranker.predict import PairScores
from zoo.tasks.sentence_embedding.predict import Embed, Role
from zoo.tokenizers.pooling import Pooling

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from zoo.checkpoint import Checkpoint
    from zoo.inference import Session

    Floats = NDArray[np.floating[Any]]
    Scored = tuple[Floats, float]  # scores of texts, (texts,), and up to which difference they tie
CLASSIFIER = "sequence-classification"
EMBED = "embed"  # task of heads


class Ranker(ABC):
    """Scores texts for queries."""

    @abstractmethod
    def search(self, queries: Sequence[str], texts: Sequence[str]) -> "Iterator[Scored]":
        """Yield the scores of all texts for each query."""

    @abstractmethod
    def rank(self, queries: Sequence[str], texts: Sequence[Sequence[str]]) -> "Iterator[Scored]":
        """Yield the scores of each query's own texts."""


class EmbeddingRanker(Ranker):
    """Similarity of embeddings, by the model's function and its prompts for retrieval."""

    def __init__(self, checkpoint: "Checkpoint", session: "Session", dim: int | None) -> None:
        self.checkpoint, self.session, self.dim = checkpoint, session, dim
        self.pooling = checkpoint.model.pooling or Pooling()
        self.function = self.pooling.similarity_fn_name

    def embed(self, texts: Iterable[str], role: Role) -> "Floats":
        """Return the embeddings of queries or documents, (texts, hidden)."""
        task = Embed(self.checkpoint, self.session, role=role, dim=self.dim)
        return task.vectors(TextExample(text, location=repr(text[:40])) for text in texts)

    @override
    def search(self, queries: Sequence[str], texts: Sequence[str]) -> "Iterator[Scored]":
        anchors = self.embed(queries, "query")
        vectors = self.embed(texts, "document")
        return similarity_rows(anchors, vectors, self.function, self.session.dtype)

    @override
    def rank(self, queries: Sequence[str], texts: Sequence[Sequence[str]]) -> "Iterator[Scored]":
        distinct = {text: None for own in texts for text in own}
        numbers = {text: number for number, text in enumerate(distinct)}
        anchors = self.embed(queries, "query")
        vectors = self.embed(distinct, "document")
        for k, own in enumerate(texts):
            anchor, candidates = anchors[k : k + 1], vectors[[numbers[text] for text in own]]
            (error,) = similarity_error(anchor, candidates, self.function, self.session.dtype)
            yield similarity_matrix(anchor, candidates, self.function)[0], float(error)


class TokenRanker(Ranker):
    """MaxSim of the embeddings of tokens."""

    def __init__(self, checkpoint: "Checkpoint", session: "Session") -> None:
        self.checkpoint, self.session = checkpoint, session
        self.function = (checkpoint.model.pooling or Pooling()).similarity_fn_name

    def embed(self, texts: Iterable[str], role: Role) -> "list[Floats]":
        """Return the embeddings of queries or documents, (tokens, width) each."""
        task = Embed(self.checkpoint, self.session, role=role)
        records = (TextExample(text, location=repr(text[:40])) for text in texts)
        return [added["embedding"] for _, added in task.stream(records)]

    @override
    def search(self, queries: Sequence[str], texts: Sequence[str]) -> "Iterator[Scored]":
        return self.rank(queries, [texts] * len(queries))

    @override
    def rank(self, queries: Sequence[str], texts: Sequence[Sequence[str]]) -> "Iterator[Scored]":
        import numpy as np

        numbers: dict[str, int] = {}
        for own in texts:
            for text in own:
                numbers.setdefault(text, len(numbers))
        vectors = self.embed(numbers, "document")
        for query, own in zip(self.embed(queries, "query"), texts, strict=True):
            found = [text_similarity(query, vectors[numbers[text]], self.function) for text in own]
            row = np.array(found)
            yield row, score_error(row, self.session.dtype)


class CrossEncoderRanker(Ranker):
    """Logits of pairs of a query and a text."""

    def __init__(self, checkpoint: "Checkpoint", session: "Session") -> None:
        self.task = PairScores(checkpoint, session)
        self.dtype = session.dtype

    @override
    def search(self, queries: Sequence[str], texts: Sequence[str]) -> "Iterator[Scored]":
        require_ranker(self.task.checkpoint, pairs=False)
        raise AssertionError("a cross-encoder is refused")

    @override
    def rank(self, queries: Sequence[str], texts: Sequence[Sequence[str]]) -> "Iterator[Scored]":
        import numpy as np

        pairs = ((query, text) for query, own in zip(queries, texts, strict=True) for text in own)
        scores = self.task.scores(pairs)
        for own in texts:
            row = np.fromiter(scores, np.float64, len(own))
            yield row, score_error(row, self.dtype)


def make_ranker(checkpoint: "Checkpoint", session: "Session", dim: int | None = None) -> Ranker:
    """Return the ranker of a model's kind; ``dim`` cuts embeddings."""
    pooling = checkpoint.model.pooling
    late = pooling is not None and pooling.model_type == "MultiVectorEncoder"
    if checkpoint.head_name != CLASSIFIER and not late:
        return EmbeddingRanker(checkpoint, session, dim)
    if dim is not None:
        raise UsageError(f"{checkpoint.path} has no embeddings to cut", "leave --dim out")
    return TokenRanker(checkpoint, session) if late else CrossEncoderRanker(checkpoint, session)


def require_ranker(checkpoint: "Checkpoint", *, pairs: bool) -> None:
    """Check that a model scores texts, or only pairs of a query and a text."""
    if checkpoint.head_name != CLASSIFIER:
        require_head(checkpoint, EMBED)
    elif not pairs:
        raise UsageError(
            f"{checkpoint.path} scores pairs of texts, and does not search a corpus",
            "evaluate it on the texts of each query, with --task reranker",
        )
