"""Variation of an accuracy over settings: of each factor, with bootstrap intervals."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from zoo.metrics.intervals import RESAMPLES, interval

Floats = NDArray[np.float64]


def bootstrap_rows(correct: NDArray[np.bool_], seed: int, resamples: int = RESAMPLES) -> Floats:
    """Return the accuracy of each setting for samples drawn with replacement, (draws, settings)."""
    # correct: whether each sample is right in each setting, (settings, samples)
    rng = np.random.default_rng(seed)
    count = correct.shape[1]
    drawn = np.empty((resamples, len(correct)))
    for number in range(resamples):
        drawn[number] = correct[:, rng.integers(count, size=count)].mean(1)
    return drawn


def factor_variation(
    accuracy: Floats, drawn: Floats, levels: Sequence[int], groups: Sequence[int] = ()
) -> Mapping[str, float | int]:
    """Return how much an accuracy depends on a factor."""
    # The accuracy of a level is the mean over all settings with it; ``deviation`` is the standard
    # deviation of these, with the ends of its interval. Where a level has a meaning in its group
    # only, such as an order of the examples that a seed selects, results are means over groups.
    # accuracy: (settings,); drawn: the same for drawn samples, (draws, settings); levels: the level
    # of the factor in each setting, (settings,); groups: of each setting, (settings,), empty for
    # one of all
    of_groups = np.array(groups if len(groups) else np.zeros(len(levels), np.int64))
    members = [
        [(of_groups == group) & (np.array(levels) == level) for level in sorted(set(levels))]
        for group in np.unique(of_groups)
    ]
    means = np.array([[accuracy[chosen].mean() for chosen in row] for row in members])
    means_drawn = np.stack(
        [np.stack([drawn[:, chosen].mean(1) for chosen in row], -1) for row in members], 1
    )
    low, high = interval(_deviation(means_drawn).mean(1))
    return {
        "levels": len(members[0]),
        "lowest": float(means.min(1).mean()),
        "highest": float(means.max(1).mean()),
        "deviation": float(_deviation(means).mean()),
        "deviation_low": low,
        "deviation_high": high,
    }


def _deviation(means: Floats) -> Any:
    """Return the standard deviation over the last axis; 0 for a single level."""
    count = means.shape[-1]
    return means.std(-1, ddof=1) if count > 1 else np.zeros(means.shape[:-1])
