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
        seed: the seed of the draws.
        resamples: the number of draws.
    """
    rng = np.random.default_rng(seed)
    count = correct.shape[1]
    accuracies = np.empty((resamples, len(correct)))
    for number in range(resamples):
        accuracies[number] = correct[:, rng.integers(count, size=count)].mean(1)
    return accuracies


def factor_variation(
    accuracy: Floats, drawn: Floats, levels: Sequence[int], groups: Sequence[int] = ()
) -> Mapping[str, float | int]:
    """Return how much an accuracy depends on a factor.

    The accuracy of a level is the mean over all settings with it; ``deviation`` is the standard
    deviation of these, with the ends of its interval. Where a level has a meaning in its group
    only, such as an order of the examples that a seed selects, results are means over groups.

    Args:
        accuracy: accuracies, (settings,).
        drawn: accuracies of drawn samples, (draws, settings).
        levels: the level of the factor in each setting, (settings,).
        groups: the group of each setting, (settings,); empty for a single group.
    """
    setting_levels = np.array(levels)
    setting_groups = np.zeros(len(levels), np.int64)
    if len(groups):
        setting_groups = np.array(groups)
    distinct_levels = sorted(set(levels))
    group_means = []
    group_means_drawn = []
    for group in np.unique(setting_groups):
        level_means = []
        level_means_drawn = []
        for level in distinct_levels:
            is_member = (setting_groups == group) & (setting_levels == level)
            level_means.append(accuracy[is_member].mean())
            level_means_drawn.append(drawn[:, is_member].mean(1))
        group_means.append(level_means)
        group_means_drawn.append(np.stack(level_means_drawn, -1))
    means = np.array(group_means)
    means_drawn = np.stack(group_means_drawn, 1)
    low, high = interval(_deviation(means_drawn).mean(1))
    return {
        "levels": len(distinct_levels),
        "lowest": float(means.min(1).mean()),
        "highest": float(means.max(1).mean()),
        "deviation": float(_deviation(means).mean()),
        "deviation_low": low,
        "deviation_high": high,
    }


def condition_means(
    accuracy: Floats,
    drawn: Floats,
    conditions: Sequence[int],
    blocks: Sequence[int],
    seed: int,
) -> list[Mapping[str, float | int]]:
    """Return the mean accuracy of each condition over its settings, and how sure it is.

    Each draw takes samples, and blocks of settings such as those of a selection of examples, with
    replacement: intervals hold for other samples and other blocks. All conditions get the same
    draws, so that the intervals of differences are those of pairs.

    Args:
        accuracy: accuracies, (settings,).
        drawn: accuracies of drawn samples, (draws, settings).
        conditions: the condition of each setting, (settings,); all have the same blocks.
        blocks: the block of each setting, (settings,).
        seed: the seed of the draws of blocks.

    Returns:
        for each condition its ``accuracy`` with the ends ``low`` and ``high`` of the interval; the
        ``lowest`` and ``highest`` accuracy and the standard ``deviation`` over its settings; and
        the ``difference`` from the first condition, with ``difference_low`` and
        ``difference_high``.
    """
    setting_conditions = np.array(conditions)
    setting_blocks = np.array(blocks)
    block_numbers = np.unique(setting_blocks)
    draws = len(drawn)
    rng = np.random.default_rng(seed)
    drawn_blocks = rng.integers(len(block_numbers), size=(draws, len(block_numbers)))
    means = []
    drawn_means = []
    deviations = []
    ranges = []
    for condition in np.unique(setting_conditions):
        is_member = setting_conditions == condition
        block_means = np.empty((draws, len(block_numbers)))
        for number, block in enumerate(block_numbers):
            block_means[:, number] = drawn[:, is_member & (setting_blocks == block)].mean(1)
        drawn_means.append(np.take_along_axis(block_means, drawn_blocks, 1).mean(1))
        members = accuracy[is_member]
        means.append(members.mean())
        deviations.append(_deviation(members))
        ranges.append((members.min(), members.max()))
    rows: list[Mapping[str, float | int]] = []
    for number, mean in enumerate(means):
        low, high = interval(drawn_means[number])
        difference_low, difference_high = interval(drawn_means[number] - drawn_means[0])
        lowest, highest = ranges[number]
        rows.append(
            {
                "accuracy": float(mean),
                "low": low,
                "high": high,
                "lowest": float(lowest),
                "highest": float(highest),
                "deviation": float(deviations[number]),
                "difference": float(mean - means[0]),
                "difference_low": difference_low,
                "difference_high": difference_high,
            }
        )
    return rows


def _deviation(means: Floats) -> Any:
    """Return the standard deviation over the last axis; 0 for a single level."""
    if means.shape[-1] == 1:
        return np.zeros(means.shape[:-1])
    return means.std(-1, ddof=1)
