"""Metrics of labels that are generated as texts, as of the text-to-text forms of GLUE.

Texts that are no labels count as in the code released with Raffel et al. 2020, arXiv:1910.10683.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from zoo.io.numbers import parse_float
from zoo.metrics.classification import ClassCounts, classification_metrics
from zoo.metrics.ranks import correlations

NO_LABEL = -1  # of a text that is no word of a label
NO_NUMBER = -1.0  # of a text that is no number, as in ``string_to_float`` there


def number_of(text: str) -> float:
    """Return the number that a text is, white space at the ends aside, or ``NO_NUMBER``."""
    number = parse_float(text.strip())
    return NO_NUMBER if number is None else number


@dataclass(frozen=True)
class GeneratedLabels:
    """Labels of samples of one data set, and those that were generated, (n,) each.

    Attributes:
        words: labels as numbers of their words; ``NO_LABEL`` for other texts.
        predicted_words: the same of the generated texts.
        numbers: labels that are numbers.
        predicted_numbers: generated texts as numbers, see ``number_of``.
    """

    words: NDArray[np.integer[Any]]
    predicted_words: NDArray[np.integer[Any]]
    numbers: NDArray[np.float64]
    predicted_numbers: NDArray[np.float64]

    def metrics(
        self,
        names: Sequence[str],
        classes: int | None,
        rows: NDArray[Any] | slice = slice(None),
    ) -> dict[str, float]:
        """Return metrics by their names.

        Args:
            names: names of the metrics.
            classes: number of labels that are words; ``None`` for labels that are numbers.
            rows: the samples to measure.
        """
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
    """Return metrics of a classifier; see ``classification_metrics``.

    A text that is no word counts as another label than the right one, as in
    ``f1_score_with_invalid`` of the released code of Raffel et al. 2020.

    Args:
        names: names of the metrics.
        predictions: (n,), ``NO_LABEL`` for other texts.
        labels: (n,).
        classes: number of classes.
    """
    predictions = np.where(predictions == NO_LABEL, (labels + 1) % classes, predictions)
    metrics = classification_metrics(ClassCounts.of(labels, predictions, classes))
    return {name: float(metrics[name]) for name in names}


def number_metrics(
    names: Sequence[str], predictions: NDArray[Any], labels: NDArray[Any]
) -> dict[str, float]:
    """Return correlations of numbers; see ``correlations``.

    Args:
        names: names of the correlations.
        predictions: (n,), of ``number_of``.
        labels: (n,).
    """
    metrics = correlations(predictions, labels)
    return {name: metrics[name] for name in names}
