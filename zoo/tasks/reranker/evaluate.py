"""Evaluation of reranking: the order of a query's own texts."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from zoo.data.readers.documents import expand_paths
from zoo.data.readers.tables import column_names
from zoo.errors import UsageError
from zoo.evaluation.base import Evaluation, Prediction, Result
from zoo.inference.embed import require_dimension
from zoo.inference.processing.windows import WindowPooling, WindowSettings
from zoo.metrics.intervals import bootstrap_samples
from zoo.metrics.retrieval import RANKED, RANKING_NAMES, ranking_scores
from zoo.overrides import override
from zoo.tasks.reranker.data import ListColumns, read_lists, review_list
from zoo.tasks.reranker.results import missing_gain, ranked_row
from zoo.tasks.retrieval.scoring import (
    CLASSIFIER,
    check_prompts,
    make_ranker,
    require_ranker,
    retrieval_prompts,
)

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from zoo.checkpoint import Checkpoint

LABEL = "label"  # default column of grades
NAMES = (*RANKED[:3], "accuracy")


class RerankerEvaluation(Evaluation):
    """NDCG, MRR and MAP of the texts of each query, by cross-encoders and encoders.

    A row has a query, a text and its grade, where rows of one query belong together; or lists of
    texts and grades; or relevant texts, and in columns of negatives texts that are not relevant.
    Queries without a relevant text are left out. See ``ranking_scores`` for the metrics and ties.
    Intervals are over queries; ``limit`` is a number of queries.
    """

    name: ClassVar[str] = "reranker"

    def __init__(
        self,
        *args: Any,
        text: str = "text",
        pair: str | None = None,
        label: str | None = None,
        negative: Sequence[str] = (),
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
        if pair is None:
            raise UsageError(
                f"{self.name} ranks texts for a query", "name the column of the texts with --pair"
            )
        self.text = text
        self.pair = pair
        self.label = label
        self.negatives = tuple(negative)
        prompts = retrieval_prompts(
            prompt_name=prompt_name,
            prompt=prompt,
            corpus_prompt_name=corpus_prompt_name,
            corpus_prompt=corpus_prompt,
        )
        self.seed = seed
        windows = WindowSettings(max_seq_len, doc_stride, window_pooling)
        self.ranker = make_ranker(self.checkpoint, self.session, dim, prompts, windows)

    @classmethod
    @override
    def require_supported(cls, checkpoint: "Checkpoint") -> None:
        require_ranker(checkpoint, pairs=True)

    @classmethod
    @override
    def check_options(cls, checkpoint: "Checkpoint", options: Mapping[str, Any]) -> None:
        if checkpoint.head_name != CLASSIFIER:
            require_dimension(checkpoint, options.get("dim"))
            check_prompts(checkpoint, options)

    @classmethod
    @override
    def mistake(cls, row: Prediction) -> float | None:
        return missing_gain(row)

    @override
    def measure(self, files: Sequence[Path]) -> Result:
        import numpy as np

        label = self.label
        if label is None and not self.negatives:
            if LABEL not in column_names(expand_paths(list(files))[0]):
                raise UsageError(
                    "the texts have no grades", "name their column with --label, or give --negative"
                )
            label = LABEL
        columns = ListColumns(self.text, self.pair, label, self.negatives)
        samples = self.samples(
            lambda problems: read_lists(files, columns, problems, grouped=True), review_list
        )
        lists = list(samples)
        ranked = [item for item in lists if max(item.labels) > 0]
        if not ranked:
            raise UsageError("no query has a relevant text", "give a grade over 0 to some")
        unanswered = len(lists) - len(ranked)
        if unanswered:
            self.warn([f"{unanswered:,} queries have no relevant text, and are left out"])
        rankings = self.ranker.rank(
            [item.text for item in ranked], [item.documents for item in ranked]
        )
        rows = self.shown(rankings, len(ranked), "queries")
        grades = [dict(enumerate(item.labels)) for item in ranked]
        table = ranking_scores(self.observed(ranked, rows, ranked_row), grades)

        def metrics(drawn_rows: "NDArray[np.integer[Any]]") -> dict[str, float]:
            means = dict(zip(RANKING_NAMES, table[drawn_rows].mean(0).tolist(), strict=True))
            return {name: means[name] for name in NAMES}

        values = metrics(np.arange(len(table)))
        sizes = {"queries": len(ranked), "texts": sum(len(item.documents) for item in ranked)}
        intervals = bootstrap_samples(metrics, len(table), self.seed)
        return Result({**values, **sizes}, {"intervals": intervals})
