"""Metrics of labels that a model generates as text, such as GLUE's text-to-text forms.

Texts that are not labels count as in the code released with Raffel et al. 2020, arXiv:1910.10683.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from zoo.io.numbers import parse_float
from zoo.metrics.classification import (
    ClassCounts,
    classification_metrics,
    matthews_correlation,
)
from zoo.metrics.ranks import correlations

NO_LABEL = -1  # stands for a text that is not a label's word
NO_NUMBER = -1.0  # stands for a text that is not a number, as in ``string_to_float`` there


def number_of(text: str) -> float:
    """Return the number that a text is without white space around it, or ``NO_NUMBER``."""
    number = parse_float(text.strip())
    return NO_NUMBER if number is None else number


@dataclass(frozen=True)
class GeneratedLabels:
    """Labels of the samples of a data set, and the generated ones, (n,) each."""

    words: NDArray[np.integer[Any]]  # index of each label's word, or ``NO_LABEL``
    predicted_words: NDArray[np.integer[Any]]
    numbers: NDArray[np.float64]
    predicted_numbers: NDArray[np.float64]

    def metrics(
        self, names: Sequence[str], classes: int | None, rows: NDArray[Any] | slice = slice(None)
    ) -> dict[str, float]:
        """Return metrics by name; labels are numbers where there are no classes."""
        if not names:
            return {}
        if classes is None:
            return number_metrics(names, self.predicted_numbers[rows], self.numbers[rows])
        return word_metrics(names, self.predicted_words[rows], self.words[rows], classes)


def word_metrics(
    names: Sequence[str],
    predictions: NDArray[np.integer[Any]],
    labels: NDArray[np.integer[Any]],
    classes: int,
) -> dict[str, float]:
    """Return metrics of a classifier by name; see ``classification_metrics``."""
    # Other texts count as a wrong label, as in ``f1_score_with_invalid`` of the released code. In
    # its Matthews correlation they are one more class: answers that are no label say nothing about
    # the labels, where wrong ones would be the opposite of them.
    is_other = predictions == NO_LABEL
    wrong_labels = np.where(is_other, (labels + 1) % classes, predictions)
    metrics = dict(classification_metrics(ClassCounts.of(labels, wrong_labels, classes)))
    other_class = np.where(is_other, classes, predictions)
    correlation = matthews_correlation(ClassCounts.of(labels, other_class, classes + 1))
    metrics["matthews_correlation"] = correlation
    return {name: float(metrics[name]) for name in names}


def number_metrics(
    names: Sequence[str], predictions: NDArray[Any], labels: NDArray[Any]
) -> dict[str, float]:
    """Return correlations by name; see ``correlations``."""
    metrics = correlations(predictions, labels)
    return {name: metrics[name] for name in names}
