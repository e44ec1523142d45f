"""Metrics of labels with an order."""

from typing import TYPE_CHECKING, Any

from zoo.metrics.classification import accuracy

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


def ordinal_metrics(
    predicted: "NDArray[np.integer[Any]]", actual: "NDArray[np.integer[Any]]"
) -> dict[str, float]:
    """Return quadratic weighted kappa, mean absolute error and accuracy of ranks, (samples,)."""
    return {
        "quadratic_kappa": quadratic_kappa(predicted, actual),
        "mean_absolute_error": float(abs(predicted - actual).mean()),
        "accuracy": accuracy(predicted, actual),
    }


def quadratic_kappa(
    predicted: "NDArray[np.integer[Any]]", actual: "NDArray[np.integer[Any]]"
) -> float:
    """Return Cohen's kappa with weights that grow with the square of the distance.

    It is 1 if all ranks agree, and 0 on average for independent ranks (Cohen 1968, Psychol. Bull.
    70:213). It is also 0 where all ranks are one and the same.
    """
    # Independent ranks have the mean squared distance of all pairs.
    expected_distance = predicted.var() + actual.var() + (predicted.mean() - actual.mean()) ** 2
    if expected_distance == 0:
        return 0.0
    observed_distance = ((predicted - actual) ** 2).mean()
    return float(1 - observed_distance / expected_distance)
