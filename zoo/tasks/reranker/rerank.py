"""The task rerank: texts sorted by their relevance to a query."""

import heapq
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

from zoo.errors import UsageError
from zoo.inference.embed import Embed
from zoo.inference.hybrid_embed import (
    Representations,
    check_representations,
    make_embed,
    parse_representations,
)
from zoo.inference.logit_scores import LogitScores, logit_score
from zoo.inference.processing.records import TextExample, validate_text
from zoo.inference.processing.table_records import InputColumns
from zoo.inference.processing.windows import (
    WindowPooling,
    pool_scores,
    require_window_options,
)
from zoo.inference.task import EncodedExample, Task
from zoo.inference.text_scores import TextScores
from zoo.overrides import override
from zoo.tasks.options import CORPUS_TEXT
from zoo.tasks.retrieval.scoring import refuse_corpus_prompt

if TYPE_CHECKING:
    import numpy as np

    from zoo.checkpoint import Checkpoint


class Rerank(Task):
    """Texts sorted by a cross-encoder, or by the similarity of their embeddings to the query's.

    Results have the keys ``corpus_id``, the number of the text in the input from 0, and
    ``score``. Equal scores are in the order of the input. Memory only has the results.

    With ``doc_stride``, a long text is read in windows, each with the whole query, and its score is
    the best window's (``max``, MaxP of Dai and Callan 2019, arXiv:1905.09217), their ``mean``, or
    the ``first`` one's.
    """

    name: ClassVar[str] = "rerank"
    heads: ClassVar[tuple[str, ...]] = ("sequence-classification", "none")
    output_keys: ClassVar[tuple[str, ...]] = ("corpus_id", "score")

    @classmethod
    @override
    def require_head(cls, checkpoint: "Checkpoint") -> None:
        if logit_score(checkpoint) is None:
            super().require_head(checkpoint)

    @classmethod
    @override
    def columns(cls, options: dict[str, Any], text: str | None, pair: str | None) -> InputColumns:
        return replace(super().columns(options, text, pair), text_flag=CORPUS_TEXT.flags)

    @classmethod
    @override
    def from_command(
        cls, records: Iterator[TextExample], options: dict[str, Any]
    ) -> tuple[Iterator[TextExample], dict[str, Any]]:
        if options["query"] is None:
            raise no_query()
        options["representation"] = parse_representations(options["representation"])
        return records, options

    @classmethod
    @override
    def check_options(cls, checkpoint: "Checkpoint", options: Mapping[str, Any]) -> None:
        check_representations(checkpoint, options.get("representation"))

    def __init__(
        self,
        *args: Any,
        query: str | None = None,
        top_k: int | None = None,
        prompt_name: str | None = None,
        prompt: str | None = None,
        corpus_prompt_name: str | None = None,
        corpus_prompt: str | None = None,
        representation: Representations | None = None,
        doc_stride: int | None = None,
        window_pooling: WindowPooling | None = None,
        **options: Any,
    ) -> None:
        super().__init__(*args, **options)
        require_window_options(doc_stride, window_pooling)
        self.has_windows = doc_stride is not None
        self.window_pooling: WindowPooling = window_pooling or "max"
        check_representations(self.checkpoint, representation)
        if prompt is not None and prompt_name is not None:
            raise UsageError("a prompt is a name or a text, and not both", "leave one out")
        if prompt is not None:
            validate_text(prompt, "the prompt")
        of_text: dict[str, Any] = {"prompt_name": corpus_prompt_name, "prompt": corpus_prompt}
        of_query: dict[str, Any] = {"prompt_name": prompt_name, "prompt": prompt}
        if query is None:
            raise no_query()
        if top_k is not None and top_k < 1:
            raise UsageError(f"{top_k} results are not possible", "give 1 or more")
        self.query = validate_text(query, "the query")
        self.top_k = top_k
        parts = (self.checkpoint, self.session, self.tokenizer)
        options.pop("tokenizer", None)
        if doc_stride is not None:
            options |= {"doc_stride": doc_stride, "window_pooling": self.window_pooling}
        scorer_class = pair_scorer_class(self.checkpoint)
        self.is_cross_encoder = scorer_class is not None
        self.scorer: Task
        if scorer_class is not None:
            self.scorer = scorer_class(*parts, **options, **of_query)
        else:
            of_text["representation"] = representation
            of_text["separate_windows"] = doc_stride is not None
            of_query["representation"] = representation
            self.scorer = make_embed(*parts, **options, **of_text, role="document")
        if self.is_cross_encoder and (corpus_prompt_name, corpus_prompt) != (None, None):
            refuse_corpus_prompt(self.checkpoint)
        if not self.is_cross_encoder:
            self.query_task = make_embed(*parts, role="query", **of_query)
            self.query_embedding = embed_query(self.query_task, self.query)

    @override
    def run_chunks(
        self, records: Iterable[TextExample], *, arrays: bool = False, start: int = 0
    ) -> Iterator[Iterator[dict[str, Any]]]:
        # All texts are scored before the best is known.
        scored = self._scored(records)
        candidates = ((score, -number, item) for number, (item, score) in enumerate(scored))
        if self.top_k is None:
            best = sorted(candidates, key=_order, reverse=True)
        else:
            best = heapq.nlargest(self.top_k, candidates, key=_order)
        yield (
            self.join_result(item, {"corpus_id": -number, "score": score}, arrays=arrays)
            for score, number, item in best
        )

    def _scored(self, records: Iterable[TextExample]) -> Iterator[tuple[EncodedExample, float]]:
        """Yield each text with its score, in order."""
        waiting = deque[TextExample]()
        self.scorer.on_progress = self.on_progress
        for item, added in self.scorer.stream(self._inputs(records, waiting)):
            if self.is_cross_encoder:
                score: float = added["score"]
            else:
                score = self._compare(added["embedding"])
            yield item._replace(record=waiting.popleft()), score

    def _compare(self, embedding: Any) -> float:
        """Return the score of the embedding of a text, or of its windows, (windows, width)."""
        if not self.has_windows:
            return self.query_task.compare(self.query_embedding, embedding)
        import numpy as np

        scores = [self.query_task.compare(self.query_embedding, window) for window in embedding]
        (score,) = pool_scores(np.array(scores), np.zeros(1, int), self.window_pooling)
        return float(score)

    def _inputs(
        self, records: Iterable[TextExample], waiting: "deque[TextExample]"
    ) -> Iterator[TextExample]:
        """Yield what the model reads for each record, and keep the record in ``waiting``."""
        for record in records:
            self.validate(record)
            waiting.append(record)
            first, pair = (
                (self.query, record.text) if self.is_cross_encoder else (record.text, None)
            )
            yield TextExample(first, pair, location=record.location)

    @override
    def run_chunk(
        self, items: list[EncodedExample]
    ) -> Iterator[tuple[EncodedExample, dict[str, Any]]]:
        raise NotImplementedError("texts are sorted together, by run_chunks")


def pair_scorer_class(checkpoint: "Checkpoint") -> type[TextScores] | None:
    """Return the task that scores pairs of a query and a text; ``None`` for sentence encoders.

    Raises:
        UsageError: the model is a classifier of several labels.
    """
    if logit_score(checkpoint) is not None:
        return LogitScores
    if "classify" not in checkpoint.head.tasks:
        return None
    labels = checkpoint.config.labels
    if len(labels) != 1:
        raise UsageError(
            f"{checkpoint.name} has {len(labels)} labels, and a reranker one",
            "zoo run classify predicts labels of pairs",
        )
    return TextScores


def no_query() -> UsageError:
    """Return the error for a ranking without a query."""
    return UsageError("rerank sorts texts by a query", "give --query TEXT")


def _order(entry: tuple[float, int, EncodedExample]) -> tuple[float, int]:
    return entry[:2]


def embed_query(task: Embed, query: str) -> "np.ndarray[Any, Any]":
    """Return the embedding of a query, (width,), or of its tokens, (tokens, width)."""
    ((_, added),) = task.stream([TextExample(query, location="the query")])
    embedding: np.ndarray[Any, Any] = added["embedding"]
    return embedding
