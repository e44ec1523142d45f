"""Results of a task: metrics, and the rows that predictions have in reports and tables.

The same part serves ``zoo finetune``, ``zoo eval``, ``zoo run`` and the gate of an export.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from zoo.data.readers.labelled import Sample
from zoo.metrics import Metric, MetricInput

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor, nn

# A row of ``zoo eval --predictions``: text, label, prediction, and what a task adds.
Prediction = Mapping[str, Any]


class LocatedSample(Protocol):
    """A sample of a table: any type that knows its file and line."""

    @property
    def location(self) -> str:
        """File and line, such as ``reviews.csv:12``."""


SampleT = TypeVar("SampleT", bound=LocatedSample)


class ResultContext(Protocol):
    """What results depend on; a ``TaskContext`` in training, an ``EvaluatedModel`` elsewhere."""

    @property
    def config(self) -> Any:
        """Configuration of the model."""

    @property
    def labels(self) -> tuple[str, ...]:
        """Classes, as the data names them, in the order of the model's outputs."""

    @property
    def label_indices(self) -> Mapping[str, int]:
        """Label -> index of the model's output."""

    @property
    def compute_dtype(self) -> str:
        """Dtype of the computation, such as ``float32``."""

    @property
    def metrics(self) -> Mapping[str, Metric]:
        """Metrics that the user selects in addition to those of the task, by name."""


@dataclass(frozen=True)
class EvaluatedModel:
    """A model whose results are computed outside of training.

    Attributes:
        config: its configuration.
        labels: classes, as the data names them, in the order of the model's outputs.
        compute_dtype: dtype of its computation.
        metrics: metrics that the user selects in addition to those of the task, by name.
    """

    config: Any
    labels: tuple[str, ...] = ()
    compute_dtype: str = "float32"
    metrics: Mapping[str, Metric] = field(default_factory=dict)

    @cached_property
    def label_indices(self) -> Mapping[str, int]:
        """Label -> index of the model's output, by the names of the data and of the model."""
        indices = dict[str, int]()
        for labels in (self.config.labels, self.labels):
            for number, name in enumerate(labels):
                indices.setdefault(name, number)
        return indices


class EvaluationResults(ABC, Generic[SampleT]):
    """Metrics of an evaluation, and its rows in reports."""

    @property
    def metric_input(self) -> MetricInput | None:
        """What the predictions are, for metrics that users select; ``None`` if they cannot."""
        return None

    @abstractmethod
    def metric_names(self, context: ResultContext) -> tuple[str, ...]:
        """Return the names of the task's own metrics; the first selects the best checkpoint."""

    def default_metric(self, context: ResultContext) -> str:
        """Return the metric that selects the best checkpoint; by default the first."""
        return self.metric_names(context)[0]

    def available_metrics(
        self, context: ResultContext, samples: Sequence[SampleT]
    ) -> Sequence[str]:
        """Return the names of the metrics that can be computed on samples; by default all."""
        return self.metric_names(context)

    def generate(
        self, context: ResultContext, model: "nn.Module", batch: "Mapping[str, Tensor]"
    ) -> "dict[str, Tensor]":
        """Return predictions of an evaluation that need more forward passes; by default none."""
        return {}

    @abstractmethod
    def metrics(
        self, context: ResultContext, predictions: "Mapping[str, NDArray[Any]]"
    ) -> dict[str, float]:
        """Return the metrics of an evaluation, finite numbers.

        Args:
            context: the run.
            predictions: ``LossOutput.predictions`` of all batches and processes.
        """

    def metric_statistics(
        self, name: str, metric: Metric, predictions: "Mapping[str, NDArray[Any]]"
    ) -> "NDArray[Any]":
        """Return the statistics of a metric that the user selects, (samples, columns).

        By default they are computed from ``prediction`` and ``label``.
        """
        return metric.statistics(predictions["prediction"], predictions["label"])

    def selected_metrics(
        self, context: ResultContext, predictions: "Mapping[str, NDArray[Any]]"
    ) -> dict[str, float]:
        """Return the metrics of an evaluation that the user selects."""
        metrics = {}
        for name, metric in context.metrics.items():
            metrics[name] = metric.value(self.metric_statistics(name, metric, predictions))
        return metrics

    def class_names(self, context: ResultContext) -> Sequence[str]:
        """Return the classes that reports count samples of; by default the labels."""
        return context.labels

    def mistake(self, row: Prediction) -> float | None:
        """Return how bad a row is, by which reports sort; ``None`` if it is good.

        By default the probability of a wrong prediction: the most confident errors come first.
        """
        return probability_of_error(row)

    def row(
        self, context: ResultContext, sample: SampleT, values: Mapping[str, Any]
    ) -> Prediction | None:
        """Return a sample's row in reports, as ``zoo eval --predictions`` has it.

        Args:
            context: the run.
            sample: the sample.
            values: name -> value of the predictions for the sample.

        Returns:
            the row; by default ``None``, for tasks without rows.
        """
        return None

    def group_by_sample(
        self, predictions: "Mapping[str, NDArray[Any]]", count: int
    ) -> "Mapping[str, Sequence[Any]]":
        """Return the predictions by sample, (samples,) each; none if they are of other units."""
        if any(len(values) != count for values in predictions.values()):
            return {}
        return predictions  # type: ignore[return-value]

    def rows(
        self,
        context: ResultContext,
        predictions: "Mapping[str, NDArray[Any]]",
        samples: Sequence[SampleT],
        numbers: Sequence[int],
    ) -> Iterator[Prediction]:
        """Yield the rows of an evaluation's samples in reports.

        Args:
            context: the run.
            predictions: name -> values of all rows.
            samples: the samples of the evaluation.
            numbers: number of each row; several processes may share rows.
        """
        by_sample = self.group_by_sample(predictions, len(numbers))
        if not by_sample:
            return
        positions = dict(zip(numbers, range(len(numbers)), strict=True))
        for number in sorted(positions):
            values = {name: array[positions[number]] for name, array in by_sample.items()}
            row = self.row(context, samples[number], values)
            if row is None:
                return
            yield row


def probability_of_error(row: Prediction) -> float | None:
    """Return the probability of a wrong prediction; ``None`` if it is right."""
    if row.get("correct", True):
        return None
    return float(row.get("probability") or 0.0)


def text_columns(sample: Sample) -> dict[str, Any]:
    """Return where a sample is, and its texts, which begin its row in reports."""
    columns: dict[str, Any] = {"location": sample.location, "text": sample.text}
    if sample.pair is not None:
        columns["pair"] = sample.pair
    return columns
