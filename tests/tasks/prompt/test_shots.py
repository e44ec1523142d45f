"""Orders of examples."""

import itertools
import math
from collections import Counter

import pytest

from zoo.errors import UsageError
from zoo.tasks.prompt.shots import draw_orders, read_orders


def test_all_orders_are_the_permutations() -> None:
    orders = draw_orders(4, "all", 0, 100)
    assert orders[0] == (0, 1, 2, 3)
    assert sorted(orders) == sorted(itertools.permutations(range(4)))


def test_a_sample_has_different_orders_and_begins_with_the_selection() -> None:
    assert sorted(draw_orders(3, 6, 0, 100)) == sorted(draw_orders(3, "all", 0, 100))
    drawn = Counter[tuple[int, ...]]()
    for seed in range(2000):
        orders = draw_orders(3, 3, seed, 100)
        assert orders == draw_orders(3, 3, seed, 100)
        assert len(set(orders)) == 3
        assert orders[0] == (0, 1, 2)
        drawn.update(orders[1:])
    # Two of the five other orders, uniformly.
    assert len(drawn) == math.factorial(3) - 1
    for count in drawn.values():
        assert abs(count / 2000 - 2 / 5) < 0.055


@pytest.mark.parametrize(
    ("count", "number", "message"),
    [
        (3, 7, "--orders 7 are more than the 6 orders of 3 examples; give --orders all"),
        (8, "all", "8 examples have 40,320 orders; give --orders N, at most 10,000"),
        (30, "all", "give --orders N, at most 10,000"),
        (8, 10_001, "--orders 10,001 are too many; give at most 10,000"),
    ],
)
def test_orders_that_do_not_exist_or_are_too_many(count: int, number: int, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        draw_orders(count, number, 0, 10_000)


@pytest.mark.parametrize("value", ["0", "-1", "every", "1.5", "", 0])
def test_orders_are_a_number_or_all(value: str | int) -> None:
    assert read_orders("all") == "all"
    assert (read_orders("12"), read_orders(3)) == (12, 3)
    with pytest.raises(UsageError, match="is neither a number from 1 nor all"):
        read_orders(value)
