"""Evaluations on tables of labelled texts: classes, numbers, several labels."""

from typing import Any, ClassVar

from zoo.errors import UsageError
from zoo.evaluation.labelled_texts import TextEvaluation
from zoo.inference.text_results import (
    CLASS_RESULTS,
    LABEL_SET_RESULTS,
    NUMBER_RESULTS,
    TextResults,
)


class TextClassificationEvaluation(TextEvaluation):
    """Accuracy, F1, Matthews correlation and calibration, with the scores of each label."""

    name: ClassVar[str] = "text-classification"
    results: ClassVar[TextResults] = CLASS_RESULTS


class RegressionEvaluation(TextEvaluation):
    """Pearson's and Spearman's correlations, and the mean squared error."""

    name: ClassVar[str] = "regression"
    results: ClassVar[TextResults] = NUMBER_RESULTS


class MultiLabelEvaluation(TextEvaluation):
    """F1 over all labels, its mean over labels, and samples with all labels right.

    The labels of a sample are a list (JSON, Parquet), or text with a separator.
    """

    name: ClassVar[str] = "multi-label"
    results: ClassVar[TextResults] = LABEL_SET_RESULTS

    def __init__(self, *args: Any, label_separator: str = ",", **options: Any) -> None:
        super().__init__(*args, **options)
        if not label_separator:
            raise UsageError("the separator of labels is empty", "leave --label-separator out")
        self.label_separator = label_separator
