"""Keyed permutations are permutations, and equal to their formula."""

from collections.abc import Iterator
from itertools import chain

import numpy as np
import pytest
from blake3 import blake3
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from zoo.data.order import ArrayPermutation, EpochOrder, KeyedPermutation, RowOrder, permutation
from zoo.data.rng import generator

WORD = 1 << 64


def finalizer(word: int) -> int:
    """``fmix64`` of MurmurHash3, of one number."""
    word ^= word >> 33
    word = (word * 0xFF51AFD7ED558CCD) % WORD
    word ^= word >> 33
    word = (word * 0xC4CEB9FE1A85EC53) % WORD
    return word ^ (word >> 33)


def by_hand(index: int, size: int, bits: int, key: str) -> int:
    """Return an element by the formula: six rounds, repeated until the result is an element."""
    digest = blake3(key.encode()).digest(48)
    keys = [int.from_bytes(digest[at : at + 8], "little") for at in range(0, 48, 8)]
    low_bits = bits // 2
    while True:
        high, low = divmod(index, 2**low_bits)
        for number, round_key in enumerate(keys):
            if number % 2 == 0:
                high ^= finalizer((low + round_key) % WORD) % 2 ** (bits - low_bits)
            else:
                low ^= finalizer((high + round_key) % WORD) % 2**low_bits
        index = high * 2**low_bits + low
        if index < size:
            return index


@pytest.mark.parametrize(
    ("size", "bits"), [(1, 8), (3, 8), (256, 8), (257, 9), (1000, 10), (2**33 + 5, 34)]
)
def test_elements_by_the_formula(size: int, bits: int) -> None:
    order = KeyedPermutation(size, 5, "order", 2)
    key = "int:5\0str:order\0int:2"
    indices = sorted({0, size // 3, size // 2, size - 1})
    expected = [by_hand(index, size, bits, key) for index in indices]
    assert [order[index] for index in indices] == expected
    assert order.take(np.array(indices)).tolist() == expected


@settings(deadline=None)
@given(size=st.integers(1, 3000), seed=st.integers(0, 2**63))
def test_each_number_occurs_once(size: int, seed: int) -> None:
    order = KeyedPermutation(size, seed, "documents")
    elements = order.take(np.arange(size))
    assert np.array_equal(np.sort(elements), np.arange(size))
    assert [order[index] for index in range(0, size, 97)] == elements[::97].tolist()


def test_an_index_outside_is_refused() -> None:
    for index in (-1, 7):
        with pytest.raises(IndexError, match="of 7 elements"):
            KeyedPermutation(7, 0)[index]


@pytest.mark.by_default("5")
@pytest.mark.parametrize("size", [3, 5, 100])
def test_elements_are_uniform(size: int) -> None:
    """Over 3,000 seeds, each element is as often at the first and the last index as any other."""
    for index in (0, size - 1):
        elements = [KeyedPermutation(size, seed, "order")[index] for seed in range(3000)]
        assert stats.chisquare(np.bincount(elements, minlength=size)).pvalue > 1e-4


def test_all_orders_of_three_occur() -> None:
    orders = [tuple(KeyedPermutation(3, seed).take(np.arange(3))) for seed in range(300)]
    counts = np.unique(orders, axis=0, return_counts=True)[1]
    assert len(counts) == 6
    assert stats.chisquare(counts).pvalue > 1e-4


def test_neighbours_are_far_apart() -> None:
    """Differences of successive elements are distributed as in NumPy's permutations."""
    size = 20_000
    keyed = np.diff(KeyedPermutation(size, 1).take(np.arange(size)))
    drawn = np.diff(generator(1).permutation(size))
    assert stats.ks_2samp(keyed, drawn).pvalue > 1e-4


def test_orders_of_earlier_runs_are_those_of_numpy() -> None:
    expected = generator(4, "documents").permutation(50)
    order = permutation("arrays", 50, 4, "documents")
    assert isinstance(order, ArrayPermutation)
    assert len(order) == 50
    assert [order[index] for index in range(50)] == expected.tolist()
    assert np.array_equal(order.take(np.arange(10, 20)), expected[10:20])


def epochs(order: RowOrder, rows: int) -> Iterator[list[int]]:
    for epoch in range(3):
        yield [order[k] for k in range(epoch * rows, (epoch + 1) * rows)]


@pytest.mark.parametrize("kind", ["keyed", "arrays"])
@pytest.mark.parametrize("rows", [1, 7, 100])
def test_each_epoch_has_each_row_once(rows: int, kind: str) -> None:
    orders = list(epochs(EpochOrder(kind, rows, 3), rows))  # type: ignore[arg-type]
    assert [order for order in orders if sorted(order) != list(range(rows))] == []
    if rows == 100:
        assert orders[0] != orders[1] != orders[2] != orders[0]
        assert next(epochs(EpochOrder(kind, rows, 4), rows)) != orders[0]  # type: ignore[arg-type]
    again = EpochOrder(kind, rows, 3)  # type: ignore[arg-type]
    backwards = [again[k] for k in reversed(range(3 * rows))]
    assert backwards[::-1] == list(chain.from_iterable(orders))
