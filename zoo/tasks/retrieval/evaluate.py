"""Evaluation of retrieval over a corpus."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from zoo.evaluation.base import Evaluation, Prediction, Result
from zoo.inference.embed import require_dimension
from zoo.inference.processing.windows import WindowPooling, WindowSettings
from zoo.io.progress import progress_of_files
from zoo.metrics.intervals import bootstrap_samples
from zoo.metrics.retrieval import RANKING_NAMES, ranking_scores
from zoo.overrides import override
from zoo.tasks.retrieval.data import RetrievalData, RetrievalFiles
from zoo.tasks.retrieval.scoring import (
    check_prompts,
    make_ranker,
    require_ranker,
    retrieval_prompts,
)

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from zoo.checkpoint import Checkpoint
    from zoo.tasks.retrieval.vectors import Scored


class RetrievalEvaluation(Evaluation):
    """NDCG, MRR, MAP and recall of the texts of a corpus, ranked for each query.

    The data is a BEIR folder, or a corpus, queries and relevance. Relevance for a query or a text
    that does not exist is an error; texts without relevance count as not relevant, and queries
    without a relevant text are left out. The model's prompts for queries and documents precede
    them, and its function compares them; see ``ranking_scores`` for the metrics and ties.
    Intervals are over queries; ``limit`` is a number of queries. Where queries are texts of the
    corpus, as in ArguAna, ``ignore_identical_ids`` ranks the query itself last.
    """

    name: ClassVar[str] = "retrieval"

    def __init__(
        self,
        *args: Any,
        queries: str | None = None,
        qrels: str | None = None,
        split: str | None = None,
        ignore_identical_ids: bool = False,
        query_text: str | None = None,
        corpus_text: str | None = None,
        dim: int | None = None,
        seed: int = 0,
        prompt_name: str | None = None,
        prompt: str | None = None,
        corpus_prompt_name: str | None = None,
        corpus_prompt: str | None = None,
        max_seq_len: int | None = None,
        doc_stride: int | None = None,
        window_pooling: WindowPooling | None = None,
        **options: Any,
    ) -> None:
        super().__init__(*args, **options)
        self.queries = queries
        self.qrels = qrels
        self.split = split
        self.ignore_identical_ids = ignore_identical_ids
        self.query_text = query_text
        self.corpus_text = corpus_text
        self.seed = seed
        prompts = retrieval_prompts(
            prompt_name=prompt_name,
            prompt=prompt,
            corpus_prompt_name=corpus_prompt_name,
            corpus_prompt=corpus_prompt,
        )
        windows = WindowSettings(max_seq_len, doc_stride, window_pooling)
        self.ranker = make_ranker(self.checkpoint, self.session, dim, prompts, windows)

    @classmethod
    @override
    def require_supported(cls, checkpoint: "Checkpoint") -> None:
        require_ranker(checkpoint, pairs=False)

    @classmethod
    @override
    def check_options(cls, checkpoint: "Checkpoint", options: Mapping[str, Any]) -> None:
        require_dimension(checkpoint, options.get("dim"))
        check_prompts(checkpoint, options)

    @classmethod
    @override
    def split_names(
        cls, data: Sequence[Path], options: Mapping[str, Any]
    ) -> tuple[list[Path], dict[str, Any]]:
        files = RetrievalFiles.find(
            data, options.get("queries"), options.get("qrels"), options.get("split")
        )
        files.require_columns(options.get("query_text"), options.get("corpus_text"))
        return files.all, {}

    @classmethod
    @override
    def mistake(cls, row: Prediction) -> float | None:
        """Return how much of the gain is missing among the first ten texts."""
        if row["correct"]:
            return None
        return 1 - float(row["ndcg_at_10"])

    @override
    def measure(self, files: Sequence[Path]) -> Result:
        import numpy as np

        retrieval_files = RetrievalFiles.find(files, self.queries, self.qrels, self.split)
        with progress_of_files("reading", retrieval_files.all):
            data = RetrievalData.read(
                retrieval_files,
                self.limit,
                query_text=self.query_text,
                corpus_text=self.corpus_text,
            )
        if data.unanswered:
            self.warn([f"{data.unanswered:,} queries have no relevant text, and are left out"])
        rankings = self.ranker.search(list(data.queries.values()), list(data.texts.values()))
        names = list(data.texts)
        if self.ignore_identical_ids:
            rankings = rank_queries_last(rankings, list(data.queries), names)
        rows = self.shown(rankings, len(data.queries), "queries")
        queries = zip(data.queries.items(), data.relevance, strict=True)

        def row(
            query: tuple[tuple[str, str], Mapping[int, float]],
            scored: "tuple[NDArray[np.floating[Any]], float]",
        ) -> Prediction:
            (name, text), grades = query
            scores, _ = scored
            best = int(scores.argmax())
            relevant = [number for number, grade in grades.items() if grade > 0]
            (values,) = ranking_scores([scored], [grades])
            return {
                "location": name,
                "text": text,
                "label": [names[number] for number in relevant],
                "prediction": names[best],
                "similarity": float(scores[best]),
                "rank": int((scores > scores[relevant].max()).sum()) + 1,
                "ndcg_at_10": float(values[0]),
                "correct": best in relevant,
            }

        table = ranking_scores(self.observed(queries, rows, row), data.relevance)

        def metrics(drawn_rows: "NDArray[np.integer[Any]]") -> dict[str, float]:
            return dict(zip(RANKING_NAMES, table[drawn_rows].mean(0).tolist(), strict=True))

        values = metrics(np.arange(len(table)))
        sizes = {"queries": len(data.queries), "texts": len(data.texts)}
        intervals = bootstrap_samples(metrics, len(table), self.seed)
        return Result({**values, **sizes}, {"intervals": intervals})


def rank_queries_last(
    rankings: "Iterable[Scored]", queries: Sequence[str], texts: Sequence[str]
) -> "Iterator[Scored]":
    """Yield the scores of texts for queries, the lowest for a text with the id of its query.

    The text still counts where it is judged as relevant, as in ``EvaluateRetrieval`` of BEIR.

    Args:
        rankings: the scores for each query, and the difference up to which they are tied.
        queries: ids of the queries.
        texts: ids of the texts, in the order of scores.
    """
    numbers = {name: number for number, name in enumerate(texts)}
    for name, (scores, error) in zip(queries, rankings, strict=True):
        number = numbers.get(name)
        if number is not None:
            scores = scores.astype("float64")
            # Not infinity, with which a metric is not a number.
            scores[number] = scores.min() - 1 - 2 * error
        yield scores, error
