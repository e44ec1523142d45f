"""Evaluation of models that score texts, on tables of labelled texts."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from zoo.data.readers.labelled import Columns, Sample, iter_samples
from zoo.data.readers.problems import RowProblems
from zoo.data.readers.review import Reviewed
from zoo.errors import UsageError
from zoo.evaluation.base import Evaluation, Prediction, Result
from zoo.evaluation.selected_metrics import add_metrics
from zoo.families.config import Problem
from zoo.inference.processing.records import TextExample
from zoo.inference.processing.windows import WindowPooling
from zoo.inference.results import EvaluatedModel
from zoo.inference.task_checks import require_head
from zoo.inference.text_results import TextResults
from zoo.inference.text_scores import TextScores
from zoo.metrics import MetricInput
from zoo.overrides import override
from zoo.plugins.metrics import select_metrics

if TYPE_CHECKING:
    from zoo.checkpoint import Checkpoint

CLASSIFY = "classify"
EVALUATIONS: Mapping[Problem, str] = {
    "single_label_classification": "text-classification",
    "regression": "regression",
    "multi_label_classification": "multi-label",
}
WORD_CLASSIFICATION = "token-classification"


def require_evaluated(checkpoint: "Checkpoint", name: str, suitable: str) -> None:
    """Check that a checkpoint is a classifier that an evaluation can measure.

    Args:
        checkpoint: the checkpoint.
        name: name of the evaluation.
        suitable: name of the evaluation for the problem type that the head needs.
    """
    require_head(checkpoint, CLASSIFY)
    labels_words = len(checkpoint.head.outputs["logits"].split()) == 3
    if labels_words:
        actual = WORD_CLASSIFICATION
    else:
        actual = EVALUATIONS[checkpoint.config.problem_type]
    if actual != suitable:
        raise UsageError(
            f"{checkpoint.name}, with the head {checkpoint.head_name}, is a model for {actual}, "
            f"and not for {name}",
            f"evaluate it with --task {actual}",
        )


def labels_in_data(labels: tuple[str, ...]) -> tuple[str, ...]:
    """Return labels as the data names them: the Hub's default name ``LABEL_3`` is ``3`` there."""
    numbers = tuple(map(str, range(len(labels))))
    if labels == tuple(f"LABEL_{number}" for number in numbers):
        return numbers
    return labels


class TextEvaluation(Evaluation):
    """Evaluation on tables; see ``zoo.data.readers.tables`` for their formats.

    The details have 95 % bootstrap intervals of the metrics.
    """

    results: ClassVar[TextResults]  # what logits and labels mean
    # Name of the evaluation for the problem type that the head needs; by default this one.
    suitable: ClassVar[str] = ""
    scores_type: ClassVar[type[TextScores]] = TextScores
    label_separator: str = ","

    def __init__(
        self,
        *args: Any,
        text: str = "text",
        pair: str | None = None,
        label: str = "label",
        seed: int = 0,
        max_seq_len: int | None = None,
        doc_stride: int | None = None,
        window_pooling: WindowPooling | None = None,
        metric: Sequence[str] = (),
        **options: Any,
    ) -> None:
        super().__init__(*args, **options)
        self.columns = Columns(text, label, pair)
        self.seed = seed
        self.task = self.scores_type(
            self.checkpoint,
            self.session,
            max_tokens=max_seq_len,
            doc_stride=doc_stride,
            window_pooling=window_pooling,
        )
        config = self.checkpoint.config
        metrics = select_metrics(metric, self.metric_input(), self.name)
        self.model = EvaluatedModel(config, labels_in_data(config.labels), metrics=metrics)

    @classmethod
    @override
    def require_supported(cls, checkpoint: "Checkpoint") -> None:
        require_evaluated(checkpoint, cls.name, cls.suitable or cls.name)

    @classmethod
    @override
    def metric_input(cls) -> MetricInput | None:
        return cls.results.metric_input

    @property
    @override
    def class_labels(self) -> Sequence[str]:
        return self.results.class_names(self.model)

    @classmethod
    @override
    def mistake(cls, row: Prediction) -> float | None:
        return cls.results.mistake(row)

    @override
    def measure(self, files: Sequence[Path]) -> Result:
        import numpy as np

        samples = self.samples(lambda problems: self._read(files, problems), self._review)
        label_dtype = self.results.label.dtype(self.model)
        labels = np.fromiter((self._label(sample) for sample in samples), label_dtype)
        self.warn(self.results.measure.warnings(self.model, labels))
        output_dtype = self.results.prediction.dtype(self.model)
        outputs = np.fromiter(self._output_values(samples, len(labels)), output_dtype)
        predictions = {"label": labels}
        for name in outputs.dtype.names or ():
            predictions[name] = outputs[name]
        metrics, details = self.results.measure.evaluate(self.model, predictions, self.seed)
        statistics = {}
        for name, metric in self.model.metrics.items():
            statistics[name] = self.results.metric_statistics(name, metric, predictions)
        result = add_metrics(
            Result(metrics, details), self.model.metrics, statistics, labels, self.seed
        )
        return replace(result, metrics={**result.metrics, "samples": len(labels)})

    def _output_values(self, samples: Iterable[Sample], count: int) -> Iterator[tuple[Any, ...]]:
        """Yield what the metrics need of the model's result for each of some samples."""
        records = (TextExample(s.text, s.pair, location=s.location) for s in samples)
        model_results = self.stream(self.task, records, count)
        for result in self.observed(samples, model_results, self._row):
            yield self.results.prediction.values(self.model, result)

    def _read(self, files: Sequence[Path], problems: RowProblems) -> Iterator[Sample]:
        samples = iter_samples(
            files, self.columns, problems, unlabelled=self.results.label.may_be_missing
        )
        return problems.valid(samples, self._label)

    def _label(self, sample: Sample) -> Any:
        return self.results.label.value(self.model, sample, self.label_separator)

    def _review(self, sample: Sample) -> Reviewed:
        return Reviewed(
            sample.texts,
            self.results.label.answer(sample, self.label_separator),
            self.results.label.names(sample, self.label_separator),
        )

    def _row(self, sample: Sample, result: Mapping[str, Any]) -> Prediction:
        """Return a sample with what the model predicts, for ``zoo eval --predictions``."""
        dtype: Any = self.results.prediction.dtype(self.model)
        names = [name for name, *_ in dtype]
        output_values = self.results.prediction.values(self.model, result)
        values = {
            "label": self._label(sample),
            **dict(zip(names, output_values, strict=True)),
            **self.results.prediction.extra_values(self.model, result),
        }
        return self.results.row(self.model, sample, values)
