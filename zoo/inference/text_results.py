"""Results of tasks that score whole texts: a class, several classes, or a number of each.

They have three parts: what a label is, what logits mean, and how both are compared.
"""

# ``zoo run`` imports these classes before it has looked at the model: what imports NumPy is
# imported where it is used.

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
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
from zoo.inference.results import (
    EvaluationResults,
    Prediction,
    ResultContext,
    probability_of_error,
    text_columns,
)
from zoo.metrics import MetricInput
from zoo.overrides import override
from zoo.sentence_models.numpy_modules import activate

if TYPE_CHECKING:
    from numpy.typing import DTypeLike, NDArray

    from zoo.checkpoint import Checkpoint

    Arrays = Mapping[str, NDArray[Any]]

THRESHOLD = 0.5  # The smallest probability of a label, in multi-label classification.


class TextLabel(ABC):
    """What the label of a text is, as metrics take it.

    Attributes:
        may_be_missing: whether a sample may have no label.
    """

    may_be_missing: ClassVar[bool] = False

    @abstractmethod
    def dtype(self, context: ResultContext) -> "DTypeLike":
        """Return the dtype of the value of a label."""

    @abstractmethod
    def value(self, context: ResultContext, sample: Sample, separator: str) -> Any:
        """Return the value of the label of a sample.

        Args:
            context: the model.
            sample: the sample.
            separator: separator of several labels.

        Raises:
            RowError: the model lacks the label.
        """

    def names(self, sample: Sample, separator: str) -> tuple[str, ...]:
        """Return the names of the classes of a sample; none for a number."""
        return ()

    def answer(self, sample: Sample, separator: str) -> tuple[Any, ...]:
        """Return what samples with the same texts must have in common."""
        return self.names(sample, separator)

    @abstractmethod
    def describe(self, context: ResultContext, value: Any) -> Any:
        """Return the value of a label, or a prediction, as rows of reports have it."""


class TextPrediction(ABC):
    """What the logits of a text mean.

    Attributes:
        output_keys: keys of a result of ``zoo run``.
    """

    output_keys: ClassVar[tuple[str, ...]]

    @abstractmethod
    def result(self, checkpoint: "Checkpoint", logits: "NDArray[Any]") -> dict[str, Any]:
        """Return the result of a text from its logits, (labels,)."""

    @abstractmethod
    def dtype(self, context: ResultContext) -> "DTypeLike":
        """Return the dtype of ``values``, with the name of each."""

    @abstractmethod
    def values(self, context: ResultContext, result: Mapping[str, Any]) -> tuple[Any, ...]:
        """Return what metrics need of a result, in the order of ``dtype``.

        ``prediction`` has the dtype of the label, and ``probability`` is its probability.
        """

    def extra_values(self, context: ResultContext, result: Mapping[str, Any]) -> dict[str, Any]:
        """Return values of an evaluation's row that a row of a training run lacks."""
        return {}


class TextMetrics(ABC):
    """Metrics of predictions, and what rows of reports compare.

    Attributes:
        metric_input: what the predictions are, for metrics that users select.
    """

    metric_input: ClassVar[MetricInput | None] = None

    @abstractmethod
    def names(self, context: ResultContext) -> tuple[str, ...]:
        """Return the names of all metrics."""

    def default(self, context: ResultContext) -> str:
        """Return the metric that selects the best checkpoint; by default the first."""
        return self.names(context)[0]

    @abstractmethod
    def compute(self, context: ResultContext, predictions: "Arrays") -> dict[str, float]:
        """Return the metrics of predictions, name -> values of all samples."""

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
            return self.compute(context, {name: v[rows] for name, v in predictions.items()})

        samples = len(predictions["label"])
        intervals = bootstrap_samples(metrics_of_rows, samples, seed)
        return self.compute(context, predictions), {"intervals": intervals}

    @abstractmethod
    def columns(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return what the row of a sample has after its label and its prediction.

        Args:
            values: ``label``, and the values of the prediction, by name.
        """

    def mistake(self, row: Prediction) -> float | None:
        """Return how bad a row is, by which reports sort; see ``EvaluationResults.mistake``."""
        return probability_of_error(row)

    def warnings(self, context: ResultContext, labels: "NDArray[Any]") -> list[str]:
        """Return what users should know about the labels of an evaluation; by default nothing."""
        return []


@dataclass(frozen=True)
class TextResults(EvaluationResults[Sample]):
    """What the logits of a text mean, in ``zoo run``, in evaluations and in training.

    Predictions of evaluations and of training have the same names and meaning: ``label`` and
    ``prediction``, and ``probability`` where there is one.

    Attributes:
        label: what the label of a text is.
        prediction: what the logits mean.
        measure: how both are compared.
    """

    label: TextLabel
    prediction: TextPrediction
    measure: TextMetrics

    @property
    @override
    def metric_input(self) -> MetricInput | None:
        return self.measure.metric_input

    @override
    def metric_names(self, context: ResultContext) -> tuple[str, ...]:
        return self.measure.names(context)

    @override
    def default_metric(self, context: ResultContext) -> str:
        return self.measure.default(context)

    @override
    def metrics(self, context: ResultContext, predictions: "Arrays") -> dict[str, float]:
        return self.measure.compute(context, predictions)

    @override
    def mistake(self, row: Prediction) -> float | None:
        return self.measure.mistake(row)

    @override
    def row(self, context: ResultContext, sample: Sample, values: Mapping[str, Any]) -> Prediction:
        return {
            **text_columns(sample),
            "label": self.label.describe(context, values["label"]),
            "prediction": self.label.describe(context, values["prediction"]),
            **self.measure.columns(values),
        }


class ClassLabel(TextLabel):
    """One class of each text, as its index."""

    @override
    def dtype(self, context: ResultContext) -> "DTypeLike":
        return "i8"

    @override
    def value(self, context: ResultContext, sample: Sample, separator: str) -> int:
        return label_number_of(context, label_name(sample.label, sample.location), sample)

    @override
    def names(self, sample: Sample, separator: str) -> tuple[str, ...]:
        return (label_name(sample.label, sample.location),)

    @override
    def describe(self, context: ResultContext, value: Any) -> str:
        return context.labels[int(value)]


CLASS_DTYPE = [("prediction", "i8"), ("probability", "f8")]


def class_values(context: ResultContext, result: Mapping[str, Any]) -> tuple[int, float]:
    """Return index and probability of the class of a result."""
    name = result["label"]
    return (context.label_indices[name], result["scores"][name])


class LikeliestClass(TextPrediction):
    """The class with the largest probability."""

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
    def dtype(self, context: ResultContext) -> "DTypeLike":
        return CLASS_DTYPE

    @override
    def values(self, context: ResultContext, result: Mapping[str, Any]) -> tuple[Any, ...]:
        return class_values(context, result)


def class_columns(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the probability of the predicted class, and whether it is the label."""
    return {
        "probability": float(values["probability"]),
        "correct": int(values["label"]) == int(values["prediction"]),
    }


class ClassMetrics(TextMetrics):
    """Accuracy, F1 and Matthews correlation; evaluations also have calibration and confusion."""

    metric_input: ClassVar[MetricInput | None] = "classes"

    @override
    def names(self, context: ResultContext) -> tuple[str, ...]:
        f1 = "f1" if len(context.labels) == 2 else "f1_macro"
        return ("accuracy", f1, "matthews_correlation")

    @override
    def compute(self, context: ResultContext, predictions: "Arrays") -> dict[str, float]:
        from zoo.metrics.classification import ClassCounts, classification_metrics

        counts = ClassCounts.of(
            predictions["label"], predictions["prediction"], len(context.labels)
        )
        return {name: float(value) for name, value in classification_metrics(counts).items()}

    @override
    def columns(self, values: Mapping[str, Any]) -> dict[str, Any]:
        return class_columns(values)

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
        return {**self.compute(context, predictions), "calibration_error": error}, details


class NumberLabel(TextLabel):
    """A number for each text."""

    @override
    def dtype(self, context: ResultContext) -> "DTypeLike":
        return "f8"

    @override
    def value(self, context: ResultContext, sample: Sample, separator: str) -> float:
        return label_number(sample.label, sample.location)

    @override
    def answer(self, sample: Sample, separator: str) -> tuple[Any, ...]:
        return (label_number(sample.label, sample.location),)

    @override
    def describe(self, context: ResultContext, value: Any) -> float:
        return float(value)


class TextScore(TextPrediction):
    """A number for each text, or for each of several outputs."""

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
    def dtype(self, context: ResultContext) -> "DTypeLike":
        return [("prediction", "f8")]

    @override
    def values(self, context: ResultContext, result: Mapping[str, Any]) -> tuple[Any, ...]:
        return (result["score"],)


@dataclass(frozen=True)
class NumberMetrics(TextMetrics):
    """Correlations of numbers, and the mean squared error.

    Attributes:
        best: metric that selects the best checkpoint.
    """

    metric_input: ClassVar[MetricInput | None] = "numbers"

    best: str = "pearson"

    @override
    def names(self, context: ResultContext) -> tuple[str, ...]:
        return ("pearson", "spearman", "mse")

    @override
    def default(self, context: ResultContext) -> str:
        return self.best

    @override
    def compute(self, context: ResultContext, predictions: "Arrays") -> dict[str, float]:
        from zoo.metrics.ranks import regression_metrics

        return regression_metrics(predictions["prediction"], predictions["label"])

    @override
    def warnings(self, context: ResultContext, labels: "NDArray[Any]") -> list[str]:
        return warn_of_equal_numbers(labels.tolist())

    @override
    def columns(self, values: Mapping[str, Any]) -> dict[str, Any]:
        return {"error": float(values["prediction"]) - float(values["label"])}

    @override
    def mistake(self, row: Prediction) -> float | None:
        return float(abs(row["error"]))


class LabelSet(TextLabel):
    """Any number of classes of each text, as a flag for each class."""

    may_be_missing: ClassVar[bool] = True

    @override
    def dtype(self, context: ResultContext) -> "DTypeLike":
        return ("?", (len(context.labels),))

    @override
    def value(self, context: ResultContext, sample: Sample, separator: str) -> "NDArray[Any]":
        """Return which labels a sample has, (labels,)."""
        import numpy as np

        flags: NDArray[Any] = np.zeros(len(context.labels), bool)
        for name in split_labels(sample, separator):
            flags[label_number_of(context, name, sample)] = True
        return flags

    @override
    def names(self, sample: Sample, separator: str) -> tuple[str, ...]:
        return split_labels(sample, separator)

    @override
    def answer(self, sample: Sample, separator: str) -> tuple[Any, ...]:
        return tuple(sorted(self.names(sample, separator)))  # in any order

    @override
    def describe(self, context: ResultContext, value: Any) -> list[str]:
        return selected_names(context.labels, value)


class LikelyClasses(TextPrediction):
    """The classes whose probability is at least ``THRESHOLD``."""

    output_keys: ClassVar[tuple[str, ...]] = ("labels", "scores")

    @override
    def result(self, checkpoint: "Checkpoint", logits: "NDArray[Any]") -> dict[str, Any]:
        probabilities = sigmoid(logits).tolist()
        scores = dict(zip(checkpoint.config.labels, probabilities, strict=True))
        labels = [name for name, probability in scores.items() if probability >= THRESHOLD]
        return {"labels": labels, "scores": scores}

    @override
    def dtype(self, context: ResultContext) -> "DTypeLike":
        return [("prediction", "?", (len(context.labels),)), ("probability", "f8")]

    @override
    def values(self, context: ResultContext, result: Mapping[str, Any]) -> tuple[Any, ...]:
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


class LabelSetMetrics(TextMetrics):
    """F1 of labels, and exact match of sets."""

    metric_input: ClassVar[MetricInput | None] = "label_sets"

    @override
    def names(self, context: ResultContext) -> tuple[str, ...]:
        return ("f1_micro", "f1_macro", "exact_match")

    @override
    def compute(self, context: ResultContext, predictions: "Arrays") -> dict[str, float]:
        from zoo.metrics.classification import multi_label_metrics

        return multi_label_metrics(predictions["prediction"], predictions["label"])

    @override
    def warnings(self, context: ResultContext, labels: "NDArray[Any]") -> list[str]:
        names = context.config.labels
        present = {name for name, count in zip(names, labels.sum(0), strict=True) if count}
        return warn_of_absent_labels(names, present, several=True)

    @override
    def columns(self, values: Mapping[str, Any]) -> dict[str, Any]:
        columns = {
            "probability": float(values["probability"]),
            "correct": list(values["label"]) == list(values["prediction"]),
        }
        if "scores" in values:
            columns["scores"] = values["scores"]
        return columns


CLASS_RESULTS = TextResults(ClassLabel(), LikeliestClass(), ClassMetrics())
NUMBER_RESULTS = TextResults(NumberLabel(), TextScore(), NumberMetrics())
LABEL_SET_RESULTS = TextResults(LabelSet(), LikelyClasses(), LabelSetMetrics())


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
