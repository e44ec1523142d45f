"""The order of rows: each once in an epoch, similar lengths in a batch, a function of the seed."""

import numpy as np
import pytest
from numpy.typing import NDArray

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


def test_the_order_is_a_function_of_seed_and_epoch() -> None:
    sizes = lengths(100)
    first, second = (LengthGroupedOrder(sizes, 8, seed=1) for _ in range(2))
    assert [second[k] for k in reversed(range(300))] == [first[k] for k in range(300)][::-1]
    other = LengthGroupedOrder(sizes, 8, seed=2)
    assert [first[k] for k in range(100)] != [other[k] for k in range(100)]
    assert [first[k] for k in range(100)] != [first[k] for k in range(100, 200)]
