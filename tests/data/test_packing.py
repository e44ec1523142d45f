"""Packed rows of a corpus: every token once per epoch, in an order determined by the seed."""

from collections import Counter
from functools import partial
from itertools import chain

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zoo.data.corpus import Split
from zoo.data.packing import EpochShuffle, PackingPlan, TemplateBudget, pack_documents
from zoo.errors import UsageError

sizes = st.lists(st.integers(1, 50), min_size=1, max_size=30)


def corpus(lengths: list[int]) -> Split:
    """Return documents of distinct tokens."""
    ends = np.cumsum(lengths).tolist()
    return Split.from_documents(
        [[list(range(e - n, e))] for e, n in zip(ends, lengths, strict=True)]
    )


def laid(split: Split, length: int = 16, around: int = 2, seed: int = 0) -> PackingPlan:
    return pack_documents(
        split, length=length, new_row=partial(TemplateBudget, length, around), seed=seed
    )


@settings(deadline=None, max_examples=60)
@given(lengths=sizes, length=st.integers(4, 80), around=st.integers(0, 3), seed=st.integers(0, 99))
def test_every_token_is_in_one_row_once(
    lengths: list[int], length: int, around: int, seed: int
) -> None:
    split = corpus(lengths)
    laid_out = laid(split, length, around, seed)
    seen: Counter[int] = Counter()
    of = np.repeat(np.arange(len(lengths)), lengths)
    for k in range(len(laid_out)):
        stretches = laid_out.row(k)
        assert stretches
        assert sum(b - a + around for a, b in stretches) <= length
        for a, b in stretches:
            assert a < b and len(set(of[a:b].tolist())) == 1  # within a document
            seen.update(split.read(a, b).tolist())
    assert seen == Counter(range(sum(lengths)))


@settings(deadline=None, max_examples=60)
@given(lengths=sizes, length=st.integers(16, 300), seed=st.integers(0, 99))
def test_rows_are_full(lengths: list[int], length: int, seed: int) -> None:
    laid_out = laid(corpus(lengths), length, 2, seed)
    for k in range(len(laid_out) - 1):
        used = sum(b - a + 2 for a, b in laid_out.row(k))
        assert length - used <= 2 + length // 64


def test_a_layout_depends_on_the_seed_alone() -> None:
    split = corpus([7, 30, 4, 12, 1, 22])
    layouts = [laid(split, seed=seed) for seed in (0, 0, 1)]
    rows = [[layout.row(k) for k in range(len(layout))] for layout in layouts]
    assert rows[0] == rows[1] != rows[2]


def test_rows_that_are_too_short() -> None:
    with pytest.raises(UsageError, match="rows of 2 tokens have no place for text"):
        laid(corpus([5]), length=2)


@pytest.mark.parametrize("rows", [1, 7, 100])
def test_each_epoch_has_each_row_once(rows: int) -> None:
    order = EpochShuffle(rows, seed=3)
    epochs = [[order[k] for k in range(e * rows, (e + 1) * rows)] for e in range(3)]
    assert [epoch for epoch in epochs if sorted(epoch) != list(range(rows))] == []
    if rows == 100:
        assert epochs[0] != epochs[1] != epochs[2]
        assert [EpochShuffle(rows, seed=4)[k] for k in range(rows)] != epochs[0]
    again = EpochShuffle(rows, seed=3)
    backwards = [again[k] for k in reversed(range(3 * rows))]
    assert backwards[::-1] == list(chain.from_iterable(epochs))
