"""A metric."""

from typing import Any

import numpy as np

from zoo.metrics import Metric, MetricSpec


class MedianError(Metric):
    """Median of the distances between predicted and correct numbers."""

    def statistics(self, predictions: Any, references: Any) -> Any:
        """Return the distances, (samples, 1)."""
        return np.abs(predictions - references)[:, None]

    def value(self, statistics: Any) -> float:
        """Return the median."""
        return float(np.median(statistics))


MEDIAN_ERROR = MetricSpec(
    "median_error",
    "median distance of numbers",
    ("numbers",),
    greater_is_better=False,
    metric=MedianError,
)
