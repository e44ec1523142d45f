"""Evaluation of pairs of texts that belong together or not."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from zoo.data.readers.labelled import Columns, Sample, iter_samples, label_name, match_label
from zoo.data.readers.problems import RowError, RowProblems
from zoo.data.readers.review import review_class
from zoo.errors import UsageError
from zoo.evaluation.base import Evaluation, Prediction, Result
from zoo.inference.embed import require_dimension
from zoo.inference.processing.records import TextExample
from zoo.inference.processing.windows import WindowPooling, WindowSettings
from zoo.metrics.intervals import bootstrap_samples
from zoo.metrics.pairs import pair_classification_metrics
from zoo.overrides import override
from zoo.tasks.retrieval.pair_scores import PairScores
from zoo.tasks.retrieval.scoring import CLASSIFIER, require_ranker
from zoo.tasks.sentence_embedding.similarity import Similarity

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from zoo.checkpoint import Checkpoint

LABELS = {"0": False, "1": True, "false": False, "true": True}
THRESHOLDS = ("accuracy_threshold", "f1_threshold")
RESAMPLES = 200


class PairClassificationEvaluation(Evaluation):
    """Average precision, and accuracy and F1 at the best thresholds, of the similarity of texts.

    The label is 1 for texts that belong together, and 0 for others. Encoders compare by their
    similarity function, after the default prompt; the score of a cross-encoder is its logit.
    """

    name: ClassVar[str] = "pair-classification"

    def __init__(
        self,
        *args: Any,
        text: str = "text",
        pair: str | None = None,
        label: str = "label",
        dim: int | None = None,
        seed: int = 0,
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
        self.columns = Columns(text, label, pair)
        self.seed = seed
        self.dim = dim
        self.windows = WindowSettings(max_seq_len, doc_stride, window_pooling)
        if dim is not None and self.checkpoint.head_name == CLASSIFIER:
            raise UsageError(f"{self.checkpoint.name} has no embeddings to cut", "leave --dim out")

    @classmethod
    @override
    def require_supported(cls, checkpoint: "Checkpoint") -> None:
        require_ranker(checkpoint, pairs=True)

    @classmethod
    @override
    def check_options(cls, checkpoint: "Checkpoint", options: Mapping[str, Any]) -> None:
        if checkpoint.head_name != CLASSIFIER:
            require_dimension(checkpoint, options.get("dim"))

    @classmethod
    @override
    def mistake(cls, row: Prediction) -> float | None:
        """Return how far a score is on the wrong side of the threshold."""
        return None if row["correct"] else float(abs(row["margin"]))

    @override
    def measure(self, files: Sequence[Path]) -> Result:
        import numpy as np

        def read(problems: RowProblems) -> Iterator[Sample]:
            return problems.valid(iter_samples(files, self.columns, problems), is_positive)

        samples = self.samples(read, review_class)
        labels = np.fromiter((is_positive(sample) for sample in samples), bool)
        records = (TextExample(s.text, s.pair, location=s.location) for s in samples)
        key = "score" if self.checkpoint.head_name == CLASSIFIER else "similarity"
        task: PairScores | Similarity
        window_options = self.windows.options()
        if key == "score":
            task = PairScores(self.checkpoint, self.session, **window_options)
        else:
            task = Similarity(self.checkpoint, self.session, dim=self.dim, **window_options)
        added = (float(values[key]) for values in self.stream(task, records, len(labels)))
        scores = np.fromiter(added, np.float64)

        def metrics(drawn_rows: "NDArray[np.integer[Any]]") -> dict[str, float]:
            return pair_classification_metrics(scores[drawn_rows], labels[drawn_rows])

        values = metrics(np.arange(len(labels)))
        margins = scores - values["accuracy_threshold"]
        self.emit(samples, zip(scores.tolist(), margins.tolist(), strict=True), _row)
        intervals = bootstrap_samples(metrics, len(labels), self.seed, RESAMPLES)
        for name in THRESHOLDS:
            del intervals[name]
        return Result({**values, "samples": len(labels)}, {"intervals": intervals})


def is_positive(sample: Sample) -> bool:
    """Return whether the texts of a pair belong together."""
    name = match_label(label_name(sample.label, sample.location), LABELS)
    if name not in LABELS:
        raise RowError(
            f"{sample.location}: the label is {name!r:.60}, not 0 or 1",
            "scores are correlated by --task sentence-embedding",
        )
    return LABELS[name]


def _row(sample: Sample, score: tuple[float, float]) -> Prediction:
    value, margin = score
    return {
        "location": sample.location,
        "text": sample.text,
        "pair": sample.pair,
        "label": int(is_positive(sample)),
        "prediction": value,
        "margin": margin,
        "correct": is_positive(sample) == (margin >= 0),
    }
