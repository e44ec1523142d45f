"""Results of labels with an order."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from zoo.data.readers.labelled import Sample
from zoo.inference.processing.numbers import softmax
from zoo.inference.results import Prediction, ResultContext
from zoo.inference.text_results import ClassResults, TextResults
from zoo.overrides import override

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from zoo.checkpoint import Checkpoint


class OrdinalResults(ClassResults):
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
    def extra_values(self, context: ResultContext, result: Mapping[str, Any]) -> dict[str, Any]:
        return {"rank": result["rank"]}

    @override
    def metric_names(self, context: ResultContext) -> tuple[str, ...]:
        return ("quadratic_kappa", "mean_absolute_error", "accuracy")

    @override
    def metrics(
        self, context: ResultContext, predictions: "Mapping[str, NDArray[Any]]"
    ) -> dict[str, float]:
        from zoo.metrics.ordinal import ordinal_metrics

        return ordinal_metrics(predictions["prediction"], predictions["label"])

    @override
    def row(self, context: ResultContext, sample: Sample, values: Mapping[str, Any]) -> Prediction:
        row = dict(super().row(context, sample, values))
        if "rank" in values:
            row["rank"] = values["rank"]
        row["distance"] = abs(int(values["prediction"]) - int(values["label"]))
        return row

    @override
    def mistake(self, row: Prediction) -> float | None:
        """Return the distance in ranks, and among equal ones the probability."""
        if not row["distance"]:
            return None
        return float(row["distance"] + row["probability"])

    @override
    def warnings(self, context: ResultContext, labels: "NDArray[Any]") -> list[str]:
        return []

    @override
    def evaluate(
        self, context: ResultContext, predictions: "Mapping[str, NDArray[Any]]", seed: int
    ) -> tuple[dict[str, float], dict[str, Any]]:
        """Return the metrics and their intervals, without those of classes without an order."""
        return TextResults.evaluate(self, context, predictions, seed)
