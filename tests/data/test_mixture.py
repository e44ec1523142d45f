"""Mixtures of sources: shares by count, rows by a naive loop, shares by the papers' formulas."""

from collections import Counter
from collections.abc import Iterator, Mapping
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zoo.data.mixture import MixtureOrder, even_order
from zoo.data.order import KeyedPermutation
from zoo.data.shares import (
    MAX_CYCLE,
    cycle_counts,
    require_shares,
    shares_by_epochs,
    shares_by_temperature,
)
from zoo.errors import UsageError

WEIGHTS = {"books": 0.613, "web": 0.25, "code": 0.137}


@settings(deadline=None)
@given(counts=st.lists(st.integers(0, 60), min_size=1, max_size=8).filter(any))
def test_each_source_has_its_share_of_every_beginning(counts: list[int]) -> None:
    """Exactly at the end, and before it up to less than a row, in whole numbers."""
    order = even_order(counts).tolist()
    length = sum(counts)
    assert [order.count(number) for number in range(len(counts))] == counts
    for end in range(1, length + 1):
        for number, count in enumerate(counts):
            difference = order[:end].count(number) - Fraction(count * end, length)
            assert abs(difference) < 1


@pytest.mark.parametrize(
    "shares",
    [
        WEIGHTS,
        shares_by_temperature({"en": 10**9, "de": 10**7, "sw": 12_345}, 3.3),
        {f"source{number}": 1 / 17 for number in range(17)},
    ],
    ids=["decimals", "temperature", "seventeenths"],
)
def test_shares_are_exact_to_a_thousandth_after_1000_rows(shares: Mapping[str, float]) -> None:
    """After any number of rows from 1,000 on, counted."""
    counts = cycle_counts(shares, "the test")
    order = MixtureOrder("keyed", dict.fromkeys(shares, 97), [(0, counts)], seed=3)
    sources = np.array([order.source_row(number)[0] for number in range(12_000)])
    for number, share in enumerate(shares.values()):
        rows = np.cumsum(sources == number)
        measured = rows / np.arange(1, len(rows) + 1)
        assert np.abs(measured - share)[999:].max() < 1e-3


def naive_rows(
    sizes: Mapping[str, int], stages: list[tuple[int, dict[str, int]]], seed: int, end: int
) -> Iterator[tuple[str, int, int]]:
    """Yield source, epoch and row of each position, by reading all that comes before.

    The source is the one with the earliest deadline of those that are not too early, by Tijdeman's
    rule in fractions; its next row is the next of its shuffled rows.
    """
    names = list(sizes)
    priority = KeyedPermutation(len(names), seed, "sources")
    in_turn = [names[priority[number]] for number in range(len(names))]
    rows_read = dict.fromkeys(names, 0)
    for stage, (first, counts) in enumerate(stages):
        last = stages[stage + 1][0] if stage + 1 < len(stages) else end
        length = sum(counts.values())
        slack = 2 * sum(map(bool, counts.values())) - 2
        for position in range(last - first):
            place = position % length
            if place == 0:
                turn = dict.fromkeys(names, 0)
            best = None
            for name in in_turn:
                count = counts.get(name, 0)
                if not count:
                    continue
                debt = Fraction(count * (place + 1), length) - turn[name]
                if slack and debt < Fraction(1, slack):
                    continue
                bound = 1 - Fraction(1, slack) if slack else Fraction(1)
                deadline = (bound - debt) / count
                if best is None or deadline < best[0]:
                    best = (deadline, name)
            assert best is not None
            name = best[1]
            turn[name] += 1
            epoch, row = divmod(rows_read[name], sizes[name])
            rows_read[name] += 1
            yield name, epoch, KeyedPermutation(sizes[name], seed, "order", epoch, name)[row]


@pytest.mark.parametrize("seed", [0, 7])
def test_rows_equal_a_naive_loop(seed: int) -> None:
    """Sources, their epochs and rows, over three stages of weights and many epochs."""
    sizes = {"books": 23, "web": 5, "code": 40}
    stages = [
        (0, {"books": 5, "web": 3, "code": 2}),
        (137, {"books": 1, "code": 9}),
        (350, cycle_counts(WEIGHTS, "the test")),
    ]
    order = MixtureOrder("keyed", sizes, stages, seed)
    expected = list(naive_rows(sizes, stages, seed, 900))
    starts = {"books": 0, "web": 23, "code": 28}
    assert [order[number] for number in range(900)] == [
        starts[name] + row for name, _, row in expected
    ]
    # A position is found without those before it.
    again = MixtureOrder("keyed", sizes, stages, seed)
    assert [again[number] for number in (899, 3, 350)] == [
        starts[name] + row for name, _, row in (expected[899], expected[3], expected[350])
    ]
    for end in (0, 136, 137, 640):
        counted = Counter(name for name, _, _ in expected[:end])
        assert order.rows_before(end) == {name: counted[name] for name in sizes}


def test_each_epoch_of_a_source_has_all_rows_in_a_new_order() -> None:
    order = MixtureOrder("keyed", {"a": 50, "b": 10}, [(0, {"a": 1, "b": 1})], seed=0)
    rows = [order[number] for number in range(200)]
    of_a = [row for row in rows if row < 50]
    of_b = [row - 50 for row in rows if row >= 50]
    assert sorted(of_a[:50]) == sorted(of_a[50:]) == list(range(50))
    assert of_a[:50] != of_a[50:]
    epochs = [of_b[start : start + 10] for start in range(0, 100, 10)]
    assert [sorted(epoch) for epoch in epochs] == [list(range(10))] * 10
    assert len(set(map(tuple, epochs))) == 10


def test_a_source_keeps_its_order_when_another_is_added() -> None:
    """Until a source is added, rows are those of a run without it; then each goes on."""
    before = MixtureOrder("keyed", {"a": 30, "b": 20}, [(0, {"a": 2, "b": 1})], seed=1)
    stages = [(0, {"a": 2, "b": 1}), (45, {"a": 1, "b": 1, "c": 2})]
    after = MixtureOrder("keyed", {"a": 30, "b": 20, "c": 9}, stages, seed=1)
    assert [after[number] for number in range(45)] == [before[number] for number in range(45)]
    assert after.rows_before(45) == {"a": 30, "b": 15, "c": 0}
    rows = [after[number] for number in range(45, 85)]
    assert Counter("abc"[(row >= 30) + (row >= 50)] for row in rows) == {"a": 10, "b": 10, "c": 20}
    # The last 5 rows of the epoch of b that had begun, and those of the next.
    of_b = [row for row in rows if 30 <= row < 50]
    first_epoch = [before[number] for number in range(60) if before[number] >= 30]
    assert of_b[:5] == first_epoch[15:20]


def test_cycles_are_exact_where_they_can_be() -> None:
    assert cycle_counts({"a": 0.3, "b": 0.7}, "x") == {"a": 3, "b": 7}
    assert cycle_counts({"a": 0.125, "b": 0.875, "c": 0.0}, "x") == {"a": 1, "b": 7, "c": 0}
    assert sum(cycle_counts({"a": 1 / 3, "b": 2 / 3}, "x").values()) == MAX_CYCLE
    with pytest.raises(UsageError, match="the share of b is 1e-06, less than a row of 10,000"):
        cycle_counts({"a": 1 - 1e-6, "b": 1e-6}, "x")


def test_shares_of_the_papers() -> None:
    """T5's r = min(e, K) / sum, then its power 1/T; mT5's exponent 0.3 is 1/T."""
    sizes = {"en": 3_000, "de": 1_000, "sw": 10}
    assert shares_by_temperature(sizes, 1.0) == pytest.approx(
        {"en": 3000 / 4010, "de": 1000 / 4010, "sw": 10 / 4010}
    )
    limited = shares_by_temperature(sizes, 2.0, limit=2_000)
    rates = np.array([2000, 1000, 10]) / 3010
    assert list(limited.values()) == pytest.approx(rates**0.5 / (rates**0.5).sum())
    multilingual = shares_by_temperature(sizes, 1 / 0.3)
    powers = np.array([3000, 1000, 10]) ** 0.3
    assert list(multilingual.values()) == pytest.approx(powers / powers.sum())
    assert shares_by_epochs(sizes, {"en": 1, "de": 3, "sw": 0}) == {
        "en": 0.5,
        "de": 0.5,
        "sw": 0.0,
    }


def test_weights_that_do_not_sum_to_1() -> None:
    require_shares({"a": 0.1, "b": 0.2, "c": 0.7}, "x")  # 0.1 + 0.2 + 0.7 is not 1.0 in float64
    with pytest.raises(UsageError) as caught:
        require_shares({"a": 0.3, "b": 0.6}, "data.sources")
    assert caught.value.what == "data.sources: the weights of a, b add up to 0.9, and not to 1"
    assert caught.value.hint == "in these proportions, they are a=0.3333, b=0.6667"
    for weights in ({"a": -0.5, "b": 1.5}, {"a": float("nan"), "b": 1.0}):
        with pytest.raises(UsageError, match="the weight of a is"):
            require_shares(weights, "x")
