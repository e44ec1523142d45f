"""Scores of texts for queries, by the score of each kind of model."""

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from zoo.errors import UsageError
from zoo.inference.embed import Embed, Role, require_prompt
from zoo.inference.logit_scores import PairLogits, logit_score
from zoo.inference.processing.records import TextExample
from zoo.inference.processing.similarity import score_error
from zoo.inference.processing.windows import (
    NO_WINDOWS,
    WindowPooling,
    WindowSettings,
    pool_scores,
)
from zoo.inference.task_checks import require_head
from zoo.inference.text_scores import TextScores
from zoo.overrides import override
from zoo.sentence_models.pooling import Pooling
from zoo.tasks.retrieval.pair_scores import PairScores
from zoo.tasks.retrieval.vectors import CorpusVectors, corpus_vectors, ranges

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from zoo.checkpoint import Checkpoint
    from zoo.inference import Session
    from zoo.tasks.retrieval.vectors import Scored

    Floats = NDArray[np.floating[Any]]
Prompt = dict[str, Any]  # ``prompt_name`` and ``prompt`` of ``Embed``
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
    """Similarity of embeddings, by the model's function and its prompts for retrieval.

    Embeddings of texts are in temporary files, sparse ones without their zeros.
    """

    def __init__(
        self,
        checkpoint: "Checkpoint",
        session: "Session",
        dim: int | None,
        prompts: Mapping[Role, Prompt] = {},
        windows: WindowSettings = NO_WINDOWS,
        *,
        separate_windows: bool = True,
    ) -> None:
        self.checkpoint = checkpoint
        self.session = session
        self.dim = dim
        self.prompts = prompts
        self.pooling = checkpoint.model.pooling or Pooling()
        # Whether windows of texts have scores of their own; otherwise their vectors are pooled.
        self.separate_windows = separate_windows and windows.doc_stride is not None
        default_pooling: WindowPooling = "max" if separate_windows else "mean"
        self.window_options = windows.options(default_pooling)

    def embed(self, texts: Collection[str], role: Role) -> "Iterator[Floats]":
        """Yield the embedding of each text: (hidden,), or (tokens, width) of late interaction.

        An embedding of separate windows is (windows, hidden).
        """
        options: dict[str, Any] = dict(self.prompts.get(role, {}))
        if role == "document":
            options |= {**self.window_options, "separate_windows": self.separate_windows}
        task = Embed(self.checkpoint, self.session, role=role, dim=self.dim, **options)
        records = (TextExample(text, location=repr(text[:40])) for text in texts)
        with contextlib.ExitStack() as stack:
            if role == "document":  # Queries are counted when they are answered.
                stack.enter_context(task.show_progress("embedding", len(texts)))
            for _, result in task.stream(records):
                yield result["embedding"]

    @contextlib.contextmanager
    def _corpus(
        self, texts: Collection[str]
    ) -> "Iterator[tuple[CorpusVectors, NDArray[np.integer[Any]]]]":
        """Yield the vectors of texts, and the number of the first one of each text, (texts,)."""
        import numpy as np

        starts = []
        with corpus_vectors(self.pooling) as corpus:
            for embedding in self.embed(texts, "document"):
                starts.append(corpus.count)
                for vector in embedding if self.separate_windows else [embedding]:
                    corpus.add(vector)
            yield corpus, np.array(starts)

    @override
    def search(self, queries: Sequence[str], texts: Sequence[str]) -> "Iterator[Scored]":
        with self._corpus(texts) as (corpus, starts):
            rows = corpus.score_rows(self.embed(queries, "query"), self.session.dtype)
            for scores, error in rows:
                yield self._score_texts(scores, starts), error

    def _score_texts(self, scores: "Floats", starts: "NDArray[np.integer[Any]]") -> "Floats":
        """Return the scores of texts, which may be those of their windows."""
        if not self.separate_windows:
            return scores
        return pool_scores(scores, starts, self.window_options["window_pooling"])

    @override
    def rank(self, queries: Sequence[str], texts: Sequence[Sequence[str]]) -> "Iterator[Scored]":
        import numpy as np

        numbers: dict[str, int] = {}
        for query_texts in texts:
            for text in query_texts:
                numbers.setdefault(text, len(numbers))
        with self._corpus(numbers) as (corpus, starts):
            counts = np.diff(starts, append=corpus.count)
            for query, query_texts in zip(self.embed(queries, "query"), texts, strict=True):
                query_numbers = np.array([numbers[text] for text in query_texts])
                query_counts = counts[query_numbers]
                vector_numbers = ranges(starts[query_numbers], query_counts)
                scores = corpus.compare([query], vector_numbers)
                (error,) = corpus.errors([query], scores, self.session.dtype)
                query_starts = np.cumsum(query_counts) - query_counts
                yield self._score_texts(scores[0], query_starts), error


class CrossEncoderRanker(Ranker):
    """Logits of pairs of a query and a text."""

    def __init__(
        self,
        checkpoint: "Checkpoint",
        session: "Session",
        prompt: Prompt | None = None,
        windows: WindowSettings = NO_WINDOWS,
    ) -> None:
        task_type = PairScores if logit_score(checkpoint) is None else PairLogits
        options = windows.options("max")
        self.task: TextScores = task_type(checkpoint, session, **(prompt or {}), **options)
        self.dtype = session.dtype

    @override
    def search(self, queries: Sequence[str], texts: Sequence[str]) -> "Iterator[Scored]":
        require_ranker(self.task.checkpoint, pairs=False)
        raise AssertionError("a cross-encoder is refused")

    @override
    def rank(self, queries: Sequence[str], texts: Sequence[Sequence[str]]) -> "Iterator[Scored]":
        import numpy as np

        def pairs() -> Iterator[tuple[str, str]]:
            for query, query_texts in zip(queries, texts, strict=True):
                for text in query_texts:
                    yield query, text

        scores = self.task.scores(pairs())
        for query_texts in texts:
            row = np.fromiter(scores, np.float64, len(query_texts))
            yield row, score_error(row, self.dtype)


def retrieval_prompts(
    *,
    prompt_name: str | None = None,
    prompt: str | None = None,
    corpus_prompt_name: str | None = None,
    corpus_prompt: str | None = None,
) -> dict[Role, Prompt]:
    """Return the prompts that options name for queries and texts."""
    prompts: dict[Role, Prompt] = {}
    if prompt_name is not None or prompt is not None:
        prompts["query"] = {"prompt_name": prompt_name, "prompt": prompt}
    if corpus_prompt_name is not None or corpus_prompt is not None:
        prompts["document"] = {"prompt_name": corpus_prompt_name, "prompt": corpus_prompt}
    return prompts


def check_prompts(checkpoint: "Checkpoint", options: Mapping[str, Any]) -> None:
    """Check the prompts of queries and texts that options name; raises ``UsageError``."""
    for prefix in ("", "corpus_"):
        name = options.get(f"{prefix}prompt_name")
        require_prompt(checkpoint, name, options.get(f"{prefix}prompt"))


def make_ranker(
    checkpoint: "Checkpoint",
    session: "Session",
    dim: int | None = None,
    prompts: Mapping[Role, Prompt] = {},
    windows: WindowSettings = NO_WINDOWS,
) -> Ranker:
    """Return the ranker of a model's kind; ``dim`` cuts embeddings."""
    if not compares_pairs(checkpoint):
        return EmbeddingRanker(checkpoint, session, dim, prompts, windows)
    if dim is not None:
        raise UsageError(f"{checkpoint.name} has no embeddings to cut", "leave --dim out")
    if "document" in prompts:
        refuse_corpus_prompt(checkpoint)
    return CrossEncoderRanker(checkpoint, session, prompts.get("query"), windows)


def compares_pairs(checkpoint: "Checkpoint") -> bool:
    """Return whether a model reads a query and a text together."""
    return checkpoint.head_name == CLASSIFIER or logit_score(checkpoint) is not None


def refuse_corpus_prompt(checkpoint: "Checkpoint") -> NoReturn:
    """Refuse a prompt of texts for a cross-encoder."""
    raise UsageError(
        f"{checkpoint.name} reads a query and a text together, with a prompt before the query",
        "leave the prompt of the texts out",
    )


def require_ranker(checkpoint: "Checkpoint", *, pairs: bool) -> None:
    """Check that a model scores texts, or only pairs of a query and a text."""
    compares = compares_pairs(checkpoint)
    has_one_score = logit_score(checkpoint) is not None or len(checkpoint.config.labels) == 1
    if compares and not pairs and has_one_score:
        raise UsageError(
            f"{checkpoint.name} is a cross-encoder, which scores pairs of texts and does not "
            "search a corpus",
            "`zoo run rerank` sorts the texts of a query, and `zoo eval --task reranker` "
            "evaluates their order",
        )
    if not (compares and pairs):
        require_head(checkpoint, EMBED)
