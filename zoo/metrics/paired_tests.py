"""Tests of whether two systems differ on the same samples."""

import math
import statistics
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from zoo.metrics.intervals import COVERAGE, RESAMPLES, interval

PERMUTATIONS = 5_000
Statistics = NDArray[np.float64]


def mcnemar(first: NDArray[np.bool_], second: NDArray[np.bool_]) -> float:
    """Return the p-value of McNemar's exact test of two systems, from 0 to 1.

    If both were right equally often, the number of samples that only the first one has right would
    have a binomial distribution over the samples that only one of them has right (McNemar 1947).

    Args:
        first: which samples the first system has right, bool, (n,).
        second: which samples the second system has right, bool, (n,).
    """
    only_first = int((first & ~second).sum())
    only_second = int((second & ~first).sum())
    total = only_first + only_second
    smaller = min(only_first, only_second)
    logarithms = []
    for count in range(smaller + 1):
        combinations = math.lgamma(total + 1) - math.lgamma(count + 1)
        logarithms.append(combinations - math.lgamma(total - count + 1) - total * math.log(2))
    return min(1.0, 2 * math.fsum(map(math.exp, logarithms)))


def permutation_test(
    first: Statistics,
    second: Statistics,
    value: Callable[[Statistics], float],
    seed: int,
    rounds: int = PERMUTATIONS,
) -> float:
    """Return the p-value of a paired permutation test of a metric of two systems, from 0 to 1.

    Each round exchanges the outputs of the systems for a random half of the samples (Noreen 1989,
    "Computer-intensive methods for testing hypotheses", section 2.6). The p-value is the fraction
    of rounds whose difference is at least the observed one, which counts as a round itself (Phipson
    and Smyth 2010).

    Args:
        first: what the metric needs of each sample of the first system, float64, (n, columns).
        second: the same of the second system.
        value: the metric of such rows.
        seed: seed of the rounds.
        rounds: number of rounds.
    """
    observed = abs(value(first) - value(second))
    # Equal differences may differ by the order of a sum.
    threshold = observed - 1e-12 * max(1.0, observed)
    rng = np.random.default_rng(seed)
    extreme = 0
    for _ in range(rounds):
        is_exchanged = rng.integers(2, size=len(first), dtype=np.int8).astype(bool)[:, None]
        one = np.where(is_exchanged, second, first)
        other = np.where(is_exchanged, first, second)
        extreme += abs(value(one) - value(other)) >= threshold
    return (extreme + 1) / (rounds + 1)


def difference_interval(
    first: Statistics,
    second: Statistics,
    value: Callable[[Statistics], float],
    seed: int,
    resamples: int = RESAMPLES,
) -> tuple[float, float]:
    """Return the bootstrap interval of the second value less the first, over the same samples."""
    rng = np.random.default_rng(seed)
    differences = np.empty(resamples)
    for number in range(resamples):
        rows = rng.integers(len(first), size=len(first))
        differences[number] = value(second[rows]) - value(first[rows])
    return interval(differences)


class PairedDifference(NamedTuple):
    """The difference of two systems over pairs of runs."""

    mean: float  # Mean of the second value less the first.
    low: float  # Interval of the mean.
    high: float
    p: float  # P-value of no difference.


def paired_t_test(first: Sequence[float], second: Sequence[float]) -> PairedDifference:
    """Return Student's paired t-test of values of pairs of runs, such as of equal seeds.

    Args:
        first: values of the first system, at least two.
        second: those of the second system, in the same order.
    """
    differences = [other - one for one, other in zip(first, second, strict=True)]
    count = len(differences)
    mean = statistics.fmean(differences)
    error = statistics.stdev(differences) / math.sqrt(count)
    if error == 0:
        return PairedDifference(mean, mean, mean, 1.0 if mean == 0 else 0.0)
    margin = _t_quantile(COVERAGE, count - 1) * error
    p = 1 - _t_probability(abs(mean) / error, count - 1)
    return PairedDifference(mean, mean - margin, mean + margin, max(p, 0.0))


def _t_probability(limit: float, freedom: int) -> float:
    """Return the probability that Student's t is between ``-limit`` and ``limit``.

    For an integer number of degrees of freedom it is a finite sum (Abramowitz and Stegun 1964,
    26.7.3 and 26.7.4).
    """
    angle = math.atan(limit / math.sqrt(freedom))
    cosine = math.cos(angle)
    is_odd = freedom % 2 == 1
    term = cosine if is_odd else 1.0
    total = 0.0
    for power in range(1 if is_odd else 0, freedom - 1, 2):
        total += term
        term *= cosine**2 * (power + 1) / (power + 2)
    total *= math.sin(angle)
    return 2 / math.pi * (angle + total) if is_odd else total


def _t_quantile(probability: float, freedom: int) -> float:
    """Return the limit for ``_t_probability``, by bisection."""
    high = 1.0
    while _t_probability(high, freedom) < probability:
        high *= 2
    low = 0.0
    for _ in range(100):
        middle = (low + high) / 2
        if _t_probability(middle, freedom) < probability:
            low = middle
        else:
            high = middle
    return high


def holm(p_values: Sequence[float]) -> list[float]:
    """Return p-values that are adjusted for their number (Holm 1979), in the same order."""
    order = sorted(range(len(p_values)), key=p_values.__getitem__)
    adjusted = [0.0] * len(p_values)
    largest = 0.0
    for rank, index in enumerate(order):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[index]))
        adjusted[index] = largest
    return adjusted
