"""Results of tasks that score whole texts: a class, several classes, or a number of each."""

# ``zoo run`` imports these classes before it has looked at the model: what imports NumPy is
# imported where it is used.

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from zoo.data.readers.labelled import (
    Sample,
    describe_labels,
    label_name,
    label_number,
    match_label,
    split_labels,
    warn_of_absent_labels,
    warn_of_equal_numbers,
)
from zoo.data.readers.problems import RowError
from zoo.inference.processing.numbers import sigmoid, softmax
from zoo.inference.results import Prediction, ResultContext, TaskResults, text_columns
from zoo.metrics import MetricInput
from zoo.overrides import override
from zoo.sentence_models.numpy_modules import activate

if TYPE_CHECKING:
    from numpy.typing import DTypeLike, NDArray

    from zoo.checkpoint import Checkpoint

    Arrays = Mapping[str, NDArray[Any]]

THRESHOLD = 0.5  # The smallest probability of a label, in multi-label classification.


class TextResults(TaskResults[Sample]):
    """What the logits of a text mean, in ``zoo run``, in evaluations and in training.

    Predictions of evaluations and of training have the same names and meaning: ``label`` and
    ``prediction``, and ``probability`` where there is one.
    """

    # Keys of a result of ``zoo run``.
    output_keys: ClassVar[tuple[str, ...]]
    # Whether a sample may have no label.
    may_be_unlabelled: ClassVar[bool] = False

    @abstractmethod
    def result(self, checkpoint: "Checkpoint", logits: "NDArray[Any]") -> dict[str, Any]:
        """Return the result of a text from its logits, (labels,)."""

    @abstractmethod
    def label_dtype(self, context: ResultContext) -> "DTypeLike":
        """Return the dtype of the label of a sample."""

    @abstractmethod
    def output_dtype(self, context: ResultContext) -> "DTypeLike":
        """Return the dtype of ``output_values``, with the name of each."""

    @abstractmethod
    def label(self, context: ResultContext, sample: Sample, separator: str) -> Any:
        """Return the label of a sample as metrics take it.

        Args:
            context: the model.
            sample: the sample.
            separator: separator of several labels.

        Raises:
            RowError: the model lacks the label.
        """

    def label_names(self, sample: Sample, separator: str) -> tuple[str, ...]:
        """Return the names of the classes of a sample; none for a number."""
        return ()

    def answer(self, context: ResultContext, sample: Sample, separator: str) -> tuple[Any, ...]:
        """Return what samples with the same texts must have in common."""
        return self.label_names(sample, separator)

    @abstractmethod
    def output_values(self, context: ResultContext, result: Mapping[str, Any]) -> tuple[Any, ...]:
        """Return the predictions of a text from its result, in the order of ``output_dtype``."""

    def extra_values(self, context: ResultContext, result: Mapping[str, Any]) -> dict[str, Any]:
        """Return values of an evaluation's row that a row of a training run lacks."""
        return {}

    def warnings(self, context: ResultContext, labels: "NDArray[Any]") -> list[str]:
        """Return what users should know about the labels of an evaluation; by default nothing."""
        return []

    def evaluate(
        self, context: ResultContext, predictions: "Arrays", seed: int
    ) -> tuple[dict[str, float], dict[str, Any]]:
        """Return the metrics of an evaluation, and its details.

        Args:
            context: the model.
            predictions: name -> values of all samples.
            seed: seed of the bootstrap.

        Returns:
            the metrics; and details, which have 95 % bootstrap intervals of the metrics.
        """
        from zoo.metrics.intervals import bootstrap_samples

        def metrics_of_rows(rows: "NDArray[Any]") -> dict[str, float]:
            return self.metrics(context, {name: v[rows] for name, v in predictions.items()})

        samples = len(predictions["label"])
        intervals = bootstrap_samples(metrics_of_rows, samples, seed)
        return self.metrics(context, predictions), {"intervals": intervals}


class ClassResults(TextResults):
    """One class of each text."""

    metric_input: ClassVar[MetricInput | None] = "classes"
    output_keys: ClassVar[tuple[str, ...]] = ("label", "score", "scores")

    @override
    def result(self, checkpoint: "Checkpoint", logits: "NDArray[Any]") -> dict[str, Any]:
        labels = checkpoint.config.labels
        probabilities = softmax(logits)
        best = int(probabilities.argmax())
        return {
            "label": labels[best],
            "score": float(probabilities[best]),
            "scores": dict(zip(labels, probabilities.tolist(), strict=True)),
        }

    @override
    def label_dtype(self, context: ResultContext) -> "DTypeLike":
        return "i8"

    @override
    def output_dtype(self, context: ResultContext) -> "DTypeLike":
        return [("prediction", "i8"), ("probability", "f8")]

    @override
    def label_names(self, sample: Sample, separator: str) -> tuple[str, ...]:
        return (label_name(sample.label, sample.location),)

    @override
    def label(self, context: ResultContext, sample: Sample, separator: str) -> int:
        return label_number_of(context, label_name(sample.label, sample.location), sample)

    @override
    def output_values(self, context: ResultContext, result: Mapping[str, Any]) -> tuple[Any, ...]:
        name = result["label"]
        return (context.label_indices[name], result["scores"][name])

    @override
    def metric_names(self, context: ResultContext) -> tuple[str, ...]:
        f1 = "f1" if len(context.labels) == 2 else "f1_macro"
        return ("accuracy", f1, "matthews_correlation")

    @override
    def metrics(self, context: ResultContext, predictions: "Arrays") -> dict[str, float]:
        from zoo.metrics.classification import ClassCounts, classification_metrics

        counts = ClassCounts.of(
            predictions["label"], predictions["prediction"], len(context.labels)
        )
        return {name: float(value) for name, value in classification_metrics(counts).items()}

    @override
    def row(self, context: ResultContext, sample: Sample, values: Mapping[str, Any]) -> Prediction:
        label = int(values["label"])
        prediction = int(values["prediction"])
        return {
            **text_columns(sample),
            "label": context.labels[label],
            "prediction": context.labels[prediction],
            "probability": float(values["probability"]),
            "correct": label == prediction,
        }

    @override
    def warnings(self, context: ResultContext, labels: "NDArray[Any]") -> list[str]:
        names = context.config.labels
        present = {names[number] for number in set(labels.tolist())}
        return warn_of_absent_labels(names, present)

    @override
    def evaluate(
        self, context: ResultContext, predictions: "Arrays", seed: int
    ) -> tuple[dict[str, float], dict[str, Any]]:
        """Return the metrics, with calibration, scores of each label and the confusion matrix."""
        from zoo.metrics.classification import (
            ClassCounts,
            class_scores,
            confusion_cells,
            reliability,
        )
        from zoo.metrics.intervals import bootstrap_classification

        labels = context.config.labels
        actual = predictions["label"]
        predicted = predictions["prediction"]
        counts = ClassCounts.of(actual, predicted, len(labels))
        cells = confusion_cells(actual, predicted)
        error, curve = reliability(predictions["probability"], predicted == actual)
        confusion: dict[str, dict[str, int]] = {label: {} for label in labels}
        for label, prediction, count in cells.tolist():
            confusion[labels[label]][labels[prediction]] = count
        scores = class_scores(counts)
        classes: dict[str, dict[str, Any]] = {}
        for number, label in enumerate(labels):
            classes[label] = {name: float(values[number]) for name, values in scores.items()}
            classes[label]["samples"] = int(counts.actual[number])
        details = {
            "intervals": bootstrap_classification(cells, len(labels), seed),
            "classes": classes,
            "reliability": curve,
            "confusion": confusion,
        }
        return {**self.metrics(context, predictions), "calibration_error": error}, details


class NumberResults(TextResults):
    """A number for each text, or for each of several outputs."""

    metric_input: ClassVar[MetricInput | None] = "numbers"
    output_keys: ClassVar[tuple[str, ...]] = ("score", "scores")

    @override
    def result(self, checkpoint: "Checkpoint", logits: "NDArray[Any]") -> dict[str, Any]:
        """Return the score; a cross-encoder's is its logit after its activation function."""
        if len(logits) > 1:
            labels = checkpoint.config.labels
            return {"scores": dict(zip(labels, logits.tolist(), strict=True))}
        activation = checkpoint.model.score_activation
        if activation is not None:
            logits = activate(logits.astype("f8"), activation)
        return {"score": float(logits[0])}

    @override
    def label_dtype(self, context: ResultContext) -> "DTypeLike":
        return "f8"

    @override
    def output_dtype(self, context: ResultContext) -> "DTypeLike":
        return [("prediction", "f8")]

    @override
    def label(self, context: ResultContext, sample: Sample, separator: str) -> float:
        return label_number(sample.label, sample.location)

    @override
    def answer(self, context: ResultContext, sample: Sample, separator: str) -> tuple[Any, ...]:
        return (label_number(sample.label, sample.location),)

    @override
    def output_values(self, context: ResultContext, result: Mapping[str, Any]) -> tuple[Any, ...]:
        return (result["score"],)

    @override
    def metric_names(self, context: ResultContext) -> tuple[str, ...]:
        return ("pearson", "spearman", "mse")

    @override
    def metrics(self, context: ResultContext, predictions: "Arrays") -> dict[str, float]:
        from zoo.metrics.ranks import regression_metrics

        return regression_metrics(predictions["prediction"], predictions["label"])

    @override
    def warnings(self, context: ResultContext, labels: "NDArray[Any]") -> list[str]:
        return warn_of_equal_numbers(labels.tolist())

    @override
    def row(self, context: ResultContext, sample: Sample, values: Mapping[str, Any]) -> Prediction:
        label = float(values["label"])
        prediction = float(values["prediction"])
        return {
            **text_columns(sample),
            "label": label,
            "prediction": prediction,
            "error": prediction - label,
        }

    @override
    def mistake(self, row: Prediction) -> float | None:
        return float(abs(row["error"]))


class SeveralClassesResults(TextResults):
    """Any number of classes of each text."""

    metric_input: ClassVar[MetricInput | None] = "label_sets"
    output_keys: ClassVar[tuple[str, ...]] = ("labels", "scores")
    may_be_unlabelled: ClassVar[bool] = True

    @override
    def result(self, checkpoint: "Checkpoint", logits: "NDArray[Any]") -> dict[str, Any]:
        probabilities = sigmoid(logits).tolist()
        scores = dict(zip(checkpoint.config.labels, probabilities, strict=True))
        labels = [name for name, probability in scores.items() if probability >= THRESHOLD]
        return {"labels": labels, "scores": scores}

    @override
    def label_dtype(self, context: ResultContext) -> "DTypeLike":
        return ("?", (len(context.labels),))

    @override
    def output_dtype(self, context: ResultContext) -> "DTypeLike":
        return [("prediction", "?", (len(context.labels),)), ("probability", "f8")]

    @override
    def label_names(self, sample: Sample, separator: str) -> tuple[str, ...]:
        return split_labels(sample, separator)

    @override
    def answer(self, context: ResultContext, sample: Sample, separator: str) -> tuple[Any, ...]:
        return tuple(sorted(self.label_names(sample, separator)))  # in any order

    @override
    def label(self, context: ResultContext, sample: Sample, separator: str) -> "NDArray[Any]":
        """Return which labels a sample has, (labels,)."""
        import numpy as np

        flags: NDArray[Any] = np.zeros(len(context.labels), bool)
        for name in split_labels(sample, separator):
            flags[label_number_of(context, name, sample)] = True
        return flags

    @override
    def output_values(self, context: ResultContext, result: Mapping[str, Any]) -> tuple[Any, ...]:
        scores: Mapping[str, float] = result["scores"]
        predicted = [name in result["labels"] for name in scores]
        # The probability of exactly these labels, which are independent.
        probability = 1.0
        for score, is_predicted in zip(scores.values(), predicted, strict=True):
            probability *= score if is_predicted else 1 - score
        return (predicted, probability)

    @override
    def extra_values(self, context: ResultContext, result: Mapping[str, Any]) -> dict[str, Any]:
        scores = result["scores"].values()
        return {"scores": dict(zip(context.labels, scores, strict=True))}

    @override
    def metric_names(self, context: ResultContext) -> tuple[str, ...]:
        return ("f1_micro", "f1_macro", "exact_match")

    @override
    def metrics(self, context: ResultContext, predictions: "Arrays") -> dict[str, float]:
        from zoo.metrics.classification import multi_label_metrics

        return multi_label_metrics(predictions["prediction"], predictions["label"])

    @override
    def warnings(self, context: ResultContext, labels: "NDArray[Any]") -> list[str]:
        names = context.config.labels
        present = {name for name, count in zip(names, labels.sum(0), strict=True) if count}
        return warn_of_absent_labels(names, present, several=True)

    @override
    def row(self, context: ResultContext, sample: Sample, values: Mapping[str, Any]) -> Prediction:
        label = selected_names(context.labels, values["label"])
        prediction = selected_names(context.labels, values["prediction"])
        row = {
            **text_columns(sample),
            "label": label,
            "prediction": prediction,
            "probability": float(values["probability"]),
            "correct": label == prediction,
        }
        if "scores" in values:
            row["scores"] = values["scores"]
        return row


def selected_names(names: Sequence[str], flags: Sequence[bool]) -> list[str]:
    """Return the names whose flag is set."""
    return [name for name, is_selected in zip(names, flags, strict=True) if is_selected]


def label_number_of(context: ResultContext, name: str, sample: Sample) -> int:
    """Return the index of a label, by its name in the data or in the model."""
    number = context.label_indices.get(match_label(name, context.label_indices))
    if number is None:
        raise RowError(
            f"{sample.location}: the model has no label {name!r}",
            f"it has {describe_labels(context.labels, name)}",
        )
    return number
