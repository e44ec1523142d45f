"""Results of labels with an order."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from zoo.inference.processing.numbers import softmax
from zoo.inference.results import Prediction, ResultContext
from zoo.inference.text_results import (
    CLASS_DTYPE,
    ClassLabel,
    TextMetrics,
    TextPrediction,
    TextResults,
    class_columns,
    class_values,
)
from zoo.metrics import MetricInput
from zoo.overrides import override

if TYPE_CHECKING:
    from numpy.typing import DTypeLike, NDArray

    from zoo.checkpoint import Checkpoint


class MedianClass(TextPrediction):
    """The median of the distribution over the labels, which minimises the expected distance.

    A result also has ``rank``, the expected index of the label, from 0.
    """

    output_keys: ClassVar[tuple[str, ...]] = ("label", "rank", "scores")

    @override
    def result(self, checkpoint: "Checkpoint", logits: "NDArray[Any]") -> dict[str, Any]:
        probabilities = softmax(logits)
        labels = checkpoint.config.labels
        median = int((probabilities.cumsum() < 0.5).sum())
        return {
            "label": labels[median],
            "rank": float(probabilities @ range(len(labels))),
            "scores": dict(zip(labels, probabilities.tolist(), strict=True)),
        }

    @override
    def dtype(self, context: ResultContext) -> "DTypeLike":
        return CLASS_DTYPE

    @override
    def values(self, context: ResultContext, result: Mapping[str, Any]) -> tuple[Any, ...]:
        return class_values(context, result)

    @override
    def extra_values(self, context: ResultContext, result: Mapping[str, Any]) -> dict[str, Any]:
        return {"rank": result["rank"]}


class OrdinalMetrics(TextMetrics):
    """Quadratic weighted kappa, mean absolute error in ranks, and accuracy."""

    metric_input: ClassVar[MetricInput | None] = "classes"

    @override
    def names(self, context: ResultContext) -> tuple[str, ...]:
        return ("quadratic_kappa", "mean_absolute_error", "accuracy")

    @override
    def compute(
        self, context: ResultContext, predictions: "Mapping[str, NDArray[Any]]"
    ) -> dict[str, float]:
        from zoo.metrics.ordinal import ordinal_metrics

        return ordinal_metrics(predictions["prediction"], predictions["label"])

    @override
    def columns(self, values: Mapping[str, Any]) -> dict[str, Any]:
        columns = class_columns(values)
        if "rank" in values:
            columns["rank"] = values["rank"]
        columns["distance"] = abs(int(values["prediction"]) - int(values["label"]))
        return columns

    @override
    def mistake(self, row: Prediction) -> float | None:
        """Return the distance in ranks, and among equal ones the probability."""
        if not row["distance"]:
            return None
        return float(row["distance"] + row["probability"])


ORDINAL_RESULTS = TextResults(ClassLabel(), MedianClass(), OrdinalMetrics())
