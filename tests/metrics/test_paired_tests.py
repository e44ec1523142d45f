"""Paired tests, next to SciPy and to all permutations of a few samples."""

from itertools import product

import numpy as np
import pytest
import scipy.stats

from zoo.metrics.paired_tests import (
    difference_interval,
    holm,
    mcnemar,
    paired_t_test,
    permutation_test,
)


def mean(rows: "np.ndarray") -> float:
    return float(rows.mean())


@pytest.mark.parametrize(
    ("only_first", "only_second"), [(0, 0), (1, 0), (3, 5), (2, 11), (40, 70), (700, 500)]
)
def test_mcnemar_is_the_binomial_test(only_first: int, only_second: int) -> None:
    first = np.array([True] * only_first + [False] * only_second + [True] * 9 + [False] * 4)
    second = np.array([False] * only_first + [True] * only_second + [True] * 9 + [False] * 4)
    total = only_first + only_second
    expected = scipy.stats.binomtest(only_first, total).pvalue if total else 1.0
    assert mcnemar(first, second) == pytest.approx(expected, rel=1e-9)
    assert mcnemar(second, first) == mcnemar(first, second)


def test_permutations_are_those_of_all_exchanges() -> None:
    rng = np.random.default_rng(0)
    first = rng.normal(size=(10, 1))
    second = first + rng.normal(0.4, 1, size=(10, 1))
    differences = (second - first)[:, 0]
    observed = abs(differences.mean())
    signs = np.array(list(product([1, -1], repeat=10)))
    expected = np.mean(np.abs((signs * differences).mean(1)) >= observed - 1e-12)
    p = permutation_test(first, second, mean, seed=0, rounds=20_000)
    assert p == pytest.approx(expected, abs=4 * np.sqrt(expected * (1 - expected) / 20_000))


def test_permutations_of_a_metric_of_all_samples() -> None:
    rng = np.random.default_rng(1)
    labels = rng.normal(size=200)
    good = np.stack([labels, labels + rng.normal(size=200)], axis=1)
    bad = np.stack([labels, labels + 3 * rng.normal(size=200)], axis=1)

    def correlation(rows: "np.ndarray") -> float:
        return float(np.corrcoef(rows.T)[0, 1])

    assert permutation_test(good, bad, correlation, seed=0, rounds=500) == pytest.approx(1 / 501)
    assert permutation_test(good, good, correlation, seed=0, rounds=500) == 1.0


def test_the_interval_is_about_the_normal_one() -> None:
    rng = np.random.default_rng(2)
    first = rng.normal(size=(1000, 1))
    second = first + rng.normal(0.5, 1, size=(1000, 1))
    low, high = difference_interval(first, second, mean, seed=0)
    differences = second - first
    error = 1.96 * differences.std() / np.sqrt(1000)
    assert low == pytest.approx(differences.mean() - error, abs=0.01)
    assert high == pytest.approx(differences.mean() + error, abs=0.01)


def test_holm() -> None:
    # By hand: 0.01 * 4, 0.02 * 3, 0.03 * 2, which is raised to the value before, and 0.4.
    assert holm([0.4, 0.01, 0.03, 0.02]) == pytest.approx([0.4, 0.04, 0.06, 0.06])
    assert holm([0.6, 0.7]) == [1.0, 1.0]
    assert holm([]) == []


@pytest.mark.parametrize("count", [2, 3, 4, 5, 6, 11])
def test_the_paired_t_test_is_scipys(count: int) -> None:
    rng = np.random.default_rng(count)
    first = rng.normal(size=count)
    second = first + rng.normal(0.5, 1, size=count)
    expected = scipy.stats.ttest_rel(second, first)
    low, high = expected.confidence_interval(0.95)
    result = paired_t_test(first.tolist(), second.tolist())
    assert result == pytest.approx(
        (np.mean(second - first), low, high, expected.pvalue), rel=1e-9, abs=1e-12
    )


def test_equal_differences_have_no_spread() -> None:
    assert paired_t_test([1.0, 2.0], [1.0, 2.0]) == (0.0, 0.0, 0.0, 1.0)
    assert paired_t_test([1.0, 2.0], [2.0, 3.0]) == (1.0, 1.0, 1.0, 0.0)
