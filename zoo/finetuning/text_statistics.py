"""Statistics of generated texts, which processes exchange in place of the texts."""

from collections.abc import Mapping, Sequence

import torch

from zoo.metrics import Metric


def statistics_key(metric_name: str) -> str:
    """Return the name of the predictions with the statistics of a metric."""
    return f"statistics_{metric_name}"


def text_statistics(
    metrics: Mapping[str, Metric], texts: Sequence[str], references: Sequence[Sequence[str]]
) -> dict[str, torch.Tensor]:
    """Return the statistics of texts, by ``statistics_key``: (texts, columns), float64."""
    statistics = {}
    for name, metric in metrics.items():
        values = metric.statistics(texts, references)
        statistics[statistics_key(name)] = torch.from_numpy(values)
    return statistics
