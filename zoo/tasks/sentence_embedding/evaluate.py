"""Evaluation of sentence embeddings: correlation of similarity with ratings, and retrieval."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from zoo.data.readers.documents import expand_paths
from zoo.data.readers.labelled import label_number, warn_of_equal_numbers
from zoo.data.readers.problems import RowProblems
from zoo.data.readers.tables import column_names
from zoo.errors import UsageError
from zoo.evaluation.base import Evaluation, Prediction, Result
from zoo.finetuning.embeddings.data import TextGroup, iter_text_groups, review_group
from zoo.finetuning.embeddings.measures import embedding_mistake, retrieval_row, scored_row
from zoo.inference.embed import require_dimension
from zoo.inference.processing.records import TextExample
from zoo.inference.processing.windows import WindowPooling, WindowSettings
from zoo.inference.task_checks import require_head
from zoo.metrics.intervals import bootstrap_samples
from zoo.metrics.ranks import correlations, rank_differences
from zoo.metrics.retrieval import NAMES, retrieval_scores
from zoo.overrides import override
from zoo.tasks.retrieval.scoring import EmbeddingRanker
from zoo.tasks.sentence_embedding.similarity import Similarity

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from zoo.checkpoint import Checkpoint

LABEL = "label"  # default column of scores


class SentenceEmbeddingEvaluation(Evaluation):
    """Correlations of the similarity of two embeddings with scores, or retrieval.

    The model decides the similarity function. Pairs with scores, such as STS, are measured by
    Spearman's correlation (Reimers et al. 2016, section 5); correlations with a constant are 0.
    Intervals are over pairs.

    Without scores, the second text of a row belongs to the first, its anchor, and is retrieved
    among the distinct second texts and negatives of the data; see ``retrieval_scores``. Rows with
    the same anchor are one query. Intervals are over queries. The model's query prompt precedes
    anchors, and its document prompt the other texts; pairs with scores get the default prompt.
    """

    name: ClassVar[str] = "sentence-embedding"

    def __init__(
        self,
        *args: Any,
        text: str = "text",
        pair: str | None = None,
        label: str | None = None,
        negative: Sequence[str] = (),
        seed: int = 0,
        dim: int | None = None,
        max_seq_len: int | None = None,
        doc_stride: int | None = None,
        window_pooling: WindowPooling | None = None,
        **options: Any,
    ) -> None:
        super().__init__(*args, **options)
        if pair is None:
            raise UsageError(
                f"{self.name} compares two texts", "name the column of the second with --pair"
            )
        if label is not None and negative:
            raise UsageError("pairs with scores have no negatives", "leave --negative out")
        self.texts = (text, pair)
        self.label = label
        self.negatives = tuple(negative)
        self.seed = seed
        self.dim = dim
        self.windows = WindowSettings(max_seq_len, doc_stride, window_pooling)

    @classmethod
    @override
    def require_supported(cls, checkpoint: "Checkpoint") -> None:
        require_head(checkpoint, Similarity.name)

    @classmethod
    @override
    def check_options(cls, checkpoint: "Checkpoint", options: Mapping[str, Any]) -> None:
        require_dimension(checkpoint, options.get("dim"))

    @classmethod
    @override
    def mistake(cls, row: Prediction) -> float | None:
        return embedding_mistake(row)

    @override
    def measure(self, files: Sequence[Path]) -> Result:
        label = self.label
        if label is None and not self.negatives:
            label = LABEL if LABEL in column_names(expand_paths(list(files))[0]) else None
        return self._retrieval(files) if label is None else self._correlations(files, label)

    def _correlations(self, files: Sequence[Path], label: str) -> Result:
        import numpy as np

        def read(problems: RowProblems) -> Iterator[TextGroup]:
            groups = iter_text_groups(files, self.texts, label, problems)
            return problems.valid(groups, lambda s: label_number(s.label, s.location))

        samples = self.samples(read, review_group)
        scores = np.fromiter((label_number(s.label, s.location) for s in samples), np.float64)
        self.warn(warn_of_equal_numbers(scores.tolist()))
        task = Similarity(self.checkpoint, self.session, dim=self.dim, **self.windows.options())
        records = (TextExample(s.texts[0], s.texts[1], location=s.location) for s in samples)
        added = self.stream(task, records, len(scores))
        similarity = np.fromiter((values["similarity"] for values in added), np.float64)
        compared = zip(similarity, rank_differences(similarity, scores), strict=True)
        self.emit(samples, compared, lambda sample, values: scored_row(sample, *values))

        def metrics(rows: "NDArray[np.integer[Any]]") -> dict[str, float]:
            values = correlations(similarity[rows], scores[rows])
            return {"spearman": values["spearman"], "pearson": values["pearson"]}

        values = metrics(np.arange(len(scores)))
        intervals = bootstrap_samples(metrics, len(scores), self.seed)
        return Result({**values, "samples": len(scores)}, {"intervals": intervals})

    def _retrieval(self, files: Sequence[Path]) -> Result:
        import numpy as np

        columns = (*self.texts, *self.negatives)
        samples = self.samples(
            lambda problems: iter_text_groups(files, columns, None, problems), review_group
        )
        # number of each
        anchors = dict[str, int]()
        texts = dict[str, int]()
        relevant = list[dict[int, None]]()  # of each anchor, its texts
        for sample in samples:
            anchor, *other_texts = sample.texts
            numbers = [texts.setdefault(other, len(texts)) for other in other_texts]
            if anchor not in anchors:
                anchors[anchor] = len(anchors)
                relevant.append({})
            relevant[anchors[anchor]][numbers[0]] = None
        ranker = EmbeddingRanker(
            self.checkpoint,
            self.session,
            self.dim,
            windows=self.windows,
            separate_windows=False,
        )
        rows = self.shown(ranker.search([*anchors], [*texts]), len(anchors), "queries")
        names = list(texts)
        queries = zip(anchors, relevant, strict=True)

        def row(
            query: tuple[str, dict[int, None]], values: "tuple[NDArray[np.floating[Any]], float]"
        ) -> Prediction:
            anchor, numbers = query
            similarity, _ = values
            return retrieval_row(anchor, [*numbers], names, similarity)

        observed = self.observed(queries, rows, row)
        table = retrieval_scores(observed, [list(numbers) for numbers in relevant])

        def metrics(rows: "NDArray[np.integer[Any]]") -> dict[str, float]:
            return dict(zip(NAMES, table[rows].mean(0).tolist(), strict=True))

        values = metrics(np.arange(len(table)))
        intervals = bootstrap_samples(metrics, len(table), self.seed)
        sizes = {"queries": len(anchors), "texts": len(texts)}
        return Result({**values, **sizes}, {"intervals": intervals})
