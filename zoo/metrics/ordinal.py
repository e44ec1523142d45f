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
    """Return Cohen's kappa with weights that grow with the square of the distance."""
    # Cohen 1968, Psychol. Bull. 70:213. 1 is agreement, 0 what independent ranks would have; 0
    # where all ranks are one and the same
    # pairs drawn independently have the mean squared distance of all pairs
    expected = predicted.var() + actual.var() + (predicted.mean() - actual.mean()) ** 2
    observed = ((predicted - actual) ** 2).mean()
    return float(1 - observed / expected) if expected else 0.0
