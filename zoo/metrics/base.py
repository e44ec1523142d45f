"""Declarations of metrics, and the base class of metrics that are selected by name."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

# What a metric is computed from, for n samples:
#
# ``classes``     predicted classes and labels, int64, (n,) each, indices of the model's labels
# ``label_sets``  predicted and correct labels of each sample, bool, (n, labels) each
# ``numbers``     predicted and correct numbers, float64, (n,) each
# ``texts``       generated texts, and for each a list of references, at least one
#
# Tasks compute from the others themselves: entities of words, rankings of texts, similarities of
# pairs, log-likelihoods of tokens, and outputs of a teacher.
MetricInput = Literal[
    "classes",
    "label_sets",
    "numbers",
    "texts",
    "entities",
    "rankings",
    "pairs",
    "tokens",
    "teacher",
]


@dataclass(frozen=True, kw_only=True)
class Metric(ABC):
    """A metric that users select by name, computed from statistics of the samples.

    A subclass is a frozen dataclass, whose fields are its settings, as in
    ``--metric bleu:lowercase=true``. ``__post_init__`` may raise ``ValueError``.

    The value depends on the samples only through their statistics: bootstrap intervals draw rows of
    statistics, and processes that share an evaluation exchange them.
    """

    @abstractmethod
    def statistics(self, predictions: Any, references: Any) -> "NDArray[np.float64]":
        """Return what the metric needs of each sample.

        Args:
            predictions: what the model predicts, as ``MetricInput`` says for what the metric is
                computed from.
            references: what is correct.

        Returns:
            statistics, float64, (samples, columns).
        """

    @abstractmethod
    def value(self, statistics: "NDArray[np.float64]") -> float:
        """Return the value of samples, a finite number, from their statistics.

        Args:
            statistics: rows that ``statistics`` returned, at least one, in any order and number,
                float64, (samples, columns).
        """

    def signature(self, references: Any) -> str:
        """Return what a paper must state to make the value reproducible; by default nothing.

        Args:
            references: what is correct.
        """
        return ""


@dataclass(frozen=True)
class MetricSpec:
    """Declaration of a metric.

    Attributes:
        name: name of the value in reports, and of ``--metric`` and ``metric_for_best_model``.
        summary: what the value is, in a few words.
        computed_from: what it is computed from.
        greater_is_better: whether a higher value is better.
        metric: class that computes it where users select it, or its ``module:Class``; empty if
            tasks compute it themselves, next to other values.
    """

    name: str
    summary: str
    computed_from: tuple[MetricInput, ...]
    greater_is_better: bool = True
    metric: "type[Metric] | str" = ""
