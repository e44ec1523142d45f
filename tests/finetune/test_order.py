"""The order of rows: each once in an epoch, similar lengths in a batch, a function of the seed."""

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from transformers.trainer_pt_utils import LengthGroupedSampler

from zoo.finetune.order import WINDOW, LengthGroupedOrder


def lengths(rows: int) -> NDArray[np.int64]:
    return np.random.default_rng(0).integers(1, 100, rows)


@pytest.mark.parametrize(("rows", "size"), [(1, 1), (1, 8), (7, 8), (64, 8), (1003, 8), (5, 3)])
def test_every_epoch_has_each_row_once(rows: int, size: int) -> None:
    order = LengthGroupedOrder(lengths(rows), size, seed=3)
    for epoch in range(5):
        taken = [order[number] for number in range(epoch * rows, (epoch + 1) * rows)]
        assert sorted(taken) == list(range(rows))


def test_batches_have_rows_of_similar_length() -> None:
    rows, size = 2003, 8
    sizes = lengths(rows)
    order = LengthGroupedOrder(sizes, size, seed=0)
    spreads = []
    for step in range(2 * rows // size):
        batch = sizes[[order[step * size + place] for place in range(size)]]
        spreads.append(int(batch.max() - batch.min()))
    # a window of 50 batches has rows of all 99 lengths, so that a batch covers some two of them
    assert sorted(spreads)[len(spreads) * 9 // 10] <= 2 * 99 / WINDOW + 4
    assert sum(spread > 20 for spread in spreads) <= 4, "those that two epochs share, and rests"


@pytest.mark.parametrize("rows", [24, 200, 1000, 4000])
def test_windows_are_those_of_the_reference(rows: int) -> None:
    """Small data sets, too, whose batches would have a length each if they were sorted whole."""
    size, sizes = 8, lengths(rows)
    order = LengthGroupedOrder(sizes, size, seed=0)
    theirs = LengthGroupedSampler(size, lengths=sizes.tolist(), generator=torch.Generator())
    spreads = [
        np.concatenate([spread(sizes[take()][: rows // size * size], size) for _ in range(20)])
        for take in (iter(map(order.epoch, range(20))).__next__, lambda: list(theirs))
    ]
    assert np.mean(spreads[0]) == pytest.approx(np.mean(spreads[1]), rel=0.15)


def spread(sizes: NDArray[np.int64], size: int) -> NDArray[np.int64]:
    """Return the difference of the largest and smallest length of each batch."""
    batches = sizes.reshape(-1, size)
    differences: NDArray[np.int64] = batches.max(axis=1) - batches.min(axis=1)
    return differences


def test_the_order_is_a_function_of_seed_and_epoch() -> None:
    sizes = lengths(100)
    first, second = (LengthGroupedOrder(sizes, 8, seed=1) for _ in range(2))
    assert [second[k] for k in reversed(range(300))] == [first[k] for k in range(300)][::-1]
    other = LengthGroupedOrder(sizes, 8, seed=2)
    assert [first[k] for k in range(100)] != [other[k] for k in range(100)]
    assert [first[k] for k in range(100)] != [first[k] for k in range(100, 200)]
