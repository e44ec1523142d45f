"""Evaluations on tables of labelled texts: classification, regression, several labels."""

import math
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from zoo.data.readers.labelled import (
    Columns,
    Sample,
    describe_labels,
    iter_samples,
    label_name,
    label_number,
    match_label,
    split_labels,
)
from zoo.data.readers.problems import RowError, RowProblems
from zoo.data.readers.review import Reviewed
from zoo.errors import UsageError
from zoo.evaluation.base import Evaluation, Prediction, Result
from zoo.evaluation.data_warnings import warn_of_absent_labels, warn_of_equal_numbers
from zoo.families.config import Problem
from zoo.inference.processing.records import TextExample
from zoo.inference.task_checks import require_head
from zoo.metrics.classification import (
    ClassCounts,
    class_scores,
    classification_metrics,
    confusion_cells,
    multi_label_metrics,
    reliability,
)
from zoo.metrics.intervals import bootstrap_classification, bootstrap_samples
from zoo.metrics.ranks import regression_metrics
from zoo.overrides import override
from zoo.tasks.text_classification.predict import ClassifyTexts, problem_of

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from zoo.checkpoint import Checkpoint

CLASSIFY = "classify"
EVALUATIONS: Mapping[Problem, str] = {
    "single_label_classification": "text-classification",
    "regression": "regression",
    "multi_label_classification": "multi-label",
}
WORDS = "token-classification"


def require_evaluated(checkpoint: "Checkpoint", name: str, kind: str) -> None:
    """Check that a checkpoint is a classifier of a kind, which an evaluation needs."""
    require_head(checkpoint, CLASSIFY)
    labels_words = len(checkpoint.head.outputs["logits"].split()) == 3
    suited = WORDS if labels_words else EVALUATIONS[problem_of(checkpoint.config)]
    if suited != kind:
        raise UsageError(
            f"{checkpoint.name}, with the head {checkpoint.head_name}, is a model for {suited}, "
            f"and not for {name}",
            f"evaluate it with --task {suited}",
        )


class LabelledEvaluation(Evaluation):
    """Evaluation of a classifier on tables; see ``zoo.data.readers.tables`` for their formats."""

    # The details have 95 % bootstrap intervals of the metrics.

    problem: ClassVar[Problem]  # problem type of the models that can be evaluated
    predictor: ClassVar[type[ClassifyTexts]] = ClassifyTexts
    unlabelled: ClassVar[bool] = False  # whether samples may have no label

    def __init__(
        self,
        *args: Any,
        text: str = "text",
        pair: str | None = None,
        label: str = "label",
        seed: int = 0,
        max_seq_len: int | None = None,
        doc_stride: int | None = None,
        **options: Any,
    ) -> None:
        super().__init__(*args, **options)
        self.columns, self.seed = Columns(text, label, pair), seed
        self.task = self.predictor(
            self.checkpoint, self.session, max_tokens=max_seq_len, doc_stride=doc_stride
        )

    @classmethod
    @override
    def require_supported(cls, checkpoint: "Checkpoint") -> None:
        require_evaluated(checkpoint, cls.name, EVALUATIONS[cls.problem])

    @property
    def labels(self) -> tuple[str, ...]:
        """Labels as the data names them: the Hub's default name ``LABEL_3`` is ``3`` there."""
        labels = self.checkpoint.config.labels
        unnamed = labels == tuple(f"LABEL_{number}" for number in range(len(labels)))
        return tuple(map(str, range(len(labels)))) if unnamed else labels

    @cached_property
    def numbers(self) -> dict[str, int]:
        """Index of each label, by the name in the data and by the name in the model."""
        named = [*enumerate(self.checkpoint.config.labels), *enumerate(self.labels)]
        return {name: number for number, name in reversed(named)}  # the first of equal names

    def number_of(self, name: str, sample: Sample) -> int:
        """Return the index of a label."""
        if (number := self.numbers.get(match_label(name, self.numbers))) is not None:
            return number
        raise RowError(
            f"{sample.location}: the model has no label {name!r}",
            f"it has {describe_labels(self.labels, name)}",
        )

    @override
    def measure(self, files: Sequence[Path]) -> Result:
        def read(problems: RowProblems) -> Iterator[Sample]:
            samples = iter_samples(files, self.columns, problems, unlabelled=self.unlabelled)
            return problems.valid(samples, self.actual)

        samples = self.samples(
            read, lambda s: Reviewed(s.texts, tuple(self.answer(s)), self.class_names(s))
        )
        records = (TextExample(s.text, s.pair, location=s.location) for s in samples)
        predictions = (added for _, added in self.task.stream(records))
        return self.result(samples, self.observed(samples, predictions, self.row))

    @abstractmethod
    def actual(self, sample: Sample) -> Any:
        """Return the label of a sample in the form that metrics take."""

    def class_names(self, sample: Sample) -> Sequence[str]:
        """Return the labels of a sample, as the data has them; none for a number."""
        return ()

    def answer(self, sample: Sample) -> Sequence[Any]:
        """Return what samples with the same texts must have in common."""
        return self.class_names(sample)

    def row(self, sample: Sample, added: Mapping[str, Any]) -> Prediction:
        """Return a sample with what the model predicts, for ``zoo eval --predictions``."""
        return {**self.inputs(sample), "label": sample.label, **added}

    def inputs(self, sample: Sample) -> dict[str, Any]:
        """Return where a sample is, and its texts."""
        pair = {} if self.columns.pair is None else {"pair": sample.pair}
        return {"location": sample.location, "text": sample.text, **pair}

    @abstractmethod
    def result(self, samples: Iterable[Sample], predictions: Iterator[dict[str, Any]]) -> Result:
        """Return the result."""


class TextClassificationEvaluation(LabelledEvaluation):
    """Accuracy, F1, Matthews correlation and calibration, with the scores of each label."""

    name: ClassVar[str] = "text-classification"
    problem: ClassVar[Problem] = "single_label_classification"

    @override
    def actual(self, sample: Sample) -> int:
        return self.number_of(label_name(sample.label, sample.location), sample)

    @property
    @override
    def class_labels(self) -> Sequence[str]:
        return self.labels

    @override
    def class_names(self, sample: Sample) -> Sequence[str]:
        return (label_name(sample.label, sample.location),)

    @override
    def row(self, sample: Sample, added: Mapping[str, Any]) -> Prediction:
        actual, predicted = self.actual(sample), self.numbers[added["label"]]
        return {
            **self.inputs(sample),
            "label": self.labels[actual],
            "prediction": self.labels[predicted],
            "probability": added["scores"][added["label"]],
            "correct": actual == predicted,
        }

    @override
    def result(self, samples: Iterable[Sample], predictions: Iterator[dict[str, Any]]) -> Result:
        import numpy as np

        labels = self.checkpoint.config.labels
        actual = np.fromiter(map(self.actual, samples), np.int64)
        pairs = ((self.numbers[added["label"]], added["score"]) for added in predictions)
        best = np.fromiter(pairs, [("label", np.int64), ("score", np.float64)])
        self.warn(warn_of_absent_labels(labels, {labels[number] for number in np.unique(actual)}))
        counts = ClassCounts.of(actual, best["label"], len(labels))
        cells = confusion_cells(actual, best["label"])
        metrics = {name: float(v) for name, v in classification_metrics(counts).items()}
        error, curve = reliability(best["score"], best["label"] == actual)
        scores = class_scores(counts)
        confusion: dict[str, dict[str, int]] = {label: {} for label in labels}
        for label, prediction, count in cells.tolist():
            confusion[labels[label]][labels[prediction]] = count
        return Result(
            {**metrics, "calibration_error": error, "samples": len(actual)},
            {
                "intervals": bootstrap_classification(cells, len(labels), self.seed),
                "classes": {
                    label: {
                        **{name: float(values[number]) for name, values in scores.items()},
                        "samples": int(counts.actual[number]),
                    }
                    for number, label in enumerate(labels)
                },
                "reliability": curve,
                "confusion": confusion,
            },
        )


class RegressionEvaluation(LabelledEvaluation):
    """Pearson's and Spearman's correlations, and the mean squared error."""

    name: ClassVar[str] = "regression"
    problem: ClassVar[Problem] = "regression"

    @override
    def actual(self, sample: Sample) -> float:
        return label_number(sample.label, sample.location)

    @override
    def answer(self, sample: Sample) -> Sequence[Any]:
        return (self.actual(sample),)

    @override
    def row(self, sample: Sample, added: Mapping[str, Any]) -> Prediction:
        label, prediction = self.actual(sample), added["score"]
        return {
            **self.inputs(sample),
            "label": label,
            "prediction": prediction,
            "error": prediction - label,
        }

    @classmethod
    @override
    def mistake(cls, row: Prediction) -> float | None:
        return float(abs(row["error"]))

    @override
    def result(self, samples: Iterable[Sample], predictions: Iterator[dict[str, Any]]) -> Result:
        import numpy as np

        actual = np.fromiter(map(self.actual, samples), np.float64)
        self.warn(warn_of_equal_numbers(actual.tolist()))
        predicted = np.fromiter((added["score"] for added in predictions), np.float64)
        intervals = bootstrap_samples(
            lambda rows: regression_metrics(predicted[rows], actual[rows]), len(actual), self.seed
        )
        metrics = regression_metrics(predicted, actual)
        return Result({**metrics, "samples": len(actual)}, {"intervals": intervals})


class MultiLabelEvaluation(LabelledEvaluation):
    """F1 over all labels, its mean over labels, and samples with all labels right."""

    # The labels of a sample are a list (JSON, Parquet), or text with a separator.

    name: ClassVar[str] = "multi-label"
    problem: ClassVar[Problem] = "multi_label_classification"
    unlabelled: ClassVar[bool] = True

    def __init__(self, *args: Any, label_separator: str = ",", **options: Any) -> None:
        super().__init__(*args, **options)
        if not label_separator:
            raise UsageError("the separator of labels is empty", "leave --label-separator out")
        self.label_separator = label_separator

    @override
    def result(self, samples: Iterable[Sample], predictions: Iterator[dict[str, Any]]) -> Result:
        import numpy as np

        labels = self.checkpoint.config.labels
        flags = np.dtype((bool, (len(labels),)))
        actual: NDArray[Any] = np.fromiter(map(self.actual, samples), flags)
        guesses = ([label in added["labels"] for label in labels] for added in predictions)
        predicted: NDArray[Any] = np.fromiter(guesses, flags)
        present = {label for label, count in zip(labels, actual.sum(0), strict=True) if count}
        self.warn(warn_of_absent_labels(labels, present, several=True))
        intervals = bootstrap_samples(
            lambda rows: multi_label_metrics(predicted[rows], actual[rows]),
            len(actual),
            self.seed,
        )
        metrics = multi_label_metrics(predicted, actual)
        return Result({**metrics, "samples": len(actual)}, {"intervals": intervals})

    @property
    @override
    def class_labels(self) -> Sequence[str]:
        return self.labels

    @override
    def class_names(self, sample: Sample) -> Sequence[str]:
        return split_labels(sample, self.label_separator)

    @override
    def answer(self, sample: Sample) -> Sequence[Any]:
        # in any order
        return sorted(self.class_names(sample))

    @override
    def row(self, sample: Sample, added: Mapping[str, Any]) -> Prediction:
        scores: Mapping[str, float] = added["scores"]
        predicted = [name in added["labels"] for name in scores]
        actual = self.actual(sample)
        pairs = zip(scores.values(), predicted, strict=True)
        return {
            **self.inputs(sample),
            "label": [name for name, on in zip(self.labels, actual, strict=True) if on],
            "prediction": [name for name, on in zip(self.labels, predicted, strict=True) if on],
            # of exactly these labels: the probabilities are independent
            "probability": math.prod(score if on else 1 - score for score, on in pairs),
            "correct": actual.tolist() == predicted,
            "scores": dict(zip(self.labels, scores.values(), strict=True)),
        }

    @override
    def actual(self, sample: Sample) -> "NDArray[np.bool_]":
        """Return which labels a sample has, (labels,)."""
        import numpy as np

        flags: NDArray[np.bool_] = np.zeros(len(self.checkpoint.config.labels), bool)
        for name in split_labels(sample, self.label_separator):
            flags[self.number_of(name, sample)] = True
        return flags
