"""Values of the metrics that users select in addition to those of a task."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from zoo.evaluation.base import Result
from zoo.metrics import Metric
from zoo.metrics.intervals import bootstrap_samples

if TYPE_CHECKING:
    from numpy.typing import NDArray

# Keys of the details of a result.
INTERVALS = "intervals"
SIGNATURES = "signatures"


def add_metrics(
    result: Result,
    metrics: Mapping[str, Metric],
    statistics: "Mapping[str, NDArray[Any]]",
    references: "Sequence[Any] | NDArray[Any]",
    seed: int,
) -> Result:
    """Return a result with the values of more metrics, their intervals and their signatures.

    Args:
        result: the result of the task's own metrics.
        metrics: name -> metric.
        statistics: name -> statistics of the samples, (samples, columns).
        references: what is correct, (samples,).
        seed: seed of the bootstrap.
    """
    if not metrics:
        return result

    def values_of_rows(rows: "NDArray[Any]") -> dict[str, float]:
        values = {}
        for name, metric in metrics.items():
            values[name] = metric.value(statistics[name][rows])
        return values

    values = {name: metric.value(statistics[name]) for name, metric in metrics.items()}
    intervals = bootstrap_samples(values_of_rows, len(references), seed)
    signatures = {}
    for name, metric in metrics.items():
        signature = metric.signature(references)
        if signature:
            signatures[name] = signature
    details = {**result.details, INTERVALS: {**result.details.get(INTERVALS, {}), **intervals}}
    if signatures:
        details[SIGNATURES] = signatures
    return replace(result, metrics={**result.metrics, **values}, details=details)


def add_text_metrics(
    result: Result,
    metrics: Mapping[str, Metric],
    texts: Sequence[str],
    references: Sequence[Sequence[str]],
    seed: int,
) -> Result:
    """Return a result with the values of more metrics of generated texts; see ``add_metrics``."""
    statistics = {}
    for name, metric in metrics.items():
        statistics[name] = metric.statistics(texts, references)
    return add_metrics(result, metrics, statistics, references, seed)
