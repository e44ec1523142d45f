"""Variation of an accuracy over settings: of each factor, with bootstrap intervals."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from zoo.metrics.intervals import RESAMPLES, interval

Floats = NDArray[np.float64]


def bootstrap_rows(correct: NDArray[np.bool_], seed: int, resamples: int = RESAMPLES) -> Floats:
    """Return the accuracy of each setting for samples drawn with replacement, (draws, settings).

    Args:
        correct: whether each sample is right in each setting, (settings, samples).
    """
    rng, count = np.random.default_rng(seed), correct.shape[1]
    drawn = np.empty((resamples, len(correct)))
    for number in range(resamples):
        drawn[number] = correct[:, rng.integers(count, size=count)].mean(1)
    return drawn


def factor_variation(
    accuracy: Floats, drawn: Floats, levels: Sequence[int]
) -> Mapping[str, float | int]:
    """Return how much an accuracy depends on a factor.

    The accuracy of a level is the mean over all settings with it; ``deviation`` is the standard
    deviation of these, with the ends of its interval.

    Args:
        accuracy: of each setting, (settings,).
        drawn: of each setting for drawn samples, (draws, settings).
        levels: the level of the factor in each setting, (settings,).
    """
    of_levels = [np.array(levels) == level for level in sorted(set(levels))]
    means = np.array([accuracy[members].mean() for members in of_levels])
    means_drawn = np.stack([drawn[:, members].mean(1) for members in of_levels], -1)
    low, high = interval(_deviation(means_drawn))
    return {
        "levels": len(of_levels),
        "lowest": float(means.min()),
        "highest": float(means.max()),
        "deviation": float(_deviation(means)),
        "deviation_low": low,
        "deviation_high": high,
    }


def _deviation(means: Floats) -> Any:
    """Return the standard deviation over the last axis; 0 for a single level."""
    count = means.shape[-1]
    return means.std(-1, ddof=1) if count > 1 else np.zeros(means.shape[:-1])
