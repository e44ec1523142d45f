"""Packed rows of a corpus: every token once per epoch, in an order determined by the seed."""

from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from zoo.data import document_stream, packing
from zoo.data.corpus import Split
from zoo.data.document_stream import Documents, document_order
from zoo.data.offsets import Offsets
from zoo.data.order import DataOrder
from zoo.data.packing import (
    BudgetFactory,
    RowBudget,
    RowPlan,
    TemplateBudget,
    cut_documents,
    pack_documents,
)
from zoo.errors import UsageError
from zoo.objectives.examples.seq2seq_packing import plan_decoder_length
from zoo.objectives.examples.span_noise import num_noise_spans, num_noise_tokens
from zoo.objectives.prefix import PrefixRowBudget
from zoo.overrides import override

sizes = st.lists(st.integers(1, 50), min_size=1, max_size=30)


def corpus(lengths: list[int]) -> Split:
    """Return documents of distinct tokens."""
    ends = np.cumsum(lengths).tolist()
    return Split.from_documents(
        [[list(range(e - n, e))] for e, n in zip(ends, lengths, strict=True)]
    )


def laid(split: Split, length: int = 16, around: int = 2, seed: int = 0) -> RowPlan:
    return pack_documents(
        split, length=length, new_row=partial(TemplateBudget, length, around), seed=seed
    )


@settings(deadline=None)
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


@settings(deadline=None)
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


def cut_rows(split: Split, length: int, special_tokens: int, seed: int) -> list[list[list[int]]]:
    """Return the tokens of each segment of each row of ``cut_documents``, by a plain loop."""
    size = length - special_tokens
    rows: list[list[list[int]]] = []
    room = 0
    is_new_segment = True
    order = document_order(split, seed)
    for index in range(len(order)):
        for token in split.read(*split.document_span(order[index])).tolist():
            if room <= 0:
                rows.append([])
                room += size
                is_new_segment = True
            if is_new_segment:
                rows[-1].append([])
                is_new_segment = False
            rows[-1][-1].append(token)
            room -= 1
        room -= special_tokens
        is_new_segment = True
    return rows


@settings(deadline=None)
@given(lengths=sizes, length=st.integers(7, 80), around=st.integers(0, 3), seed=st.integers(0, 99))
def test_cut_rows_are_those_of_a_plain_loop(
    lengths: list[int], length: int, around: int, seed: int
) -> None:
    split = corpus(lengths)
    plan = cut_documents(split, length=length, special_tokens=around, seed=seed)
    rows = [[split.read(*span).tolist() for span in plan.row(k)] for k in range(len(plan))]
    assert rows == cut_rows(split, length, around, seed)
    sizes_of_rows = [sum(len(segment) + around for segment in row) for row in rows]
    assert max(sizes_of_rows) <= length
    # A row may begin and end in a gap.
    assert min(sizes_of_rows[:-1], default=length) >= length - 2 * around


def test_cut_rows_that_are_too_short() -> None:
    """A row of five tokens may be a gap of three."""
    with pytest.raises(UsageError, match="rows of 6 tokens have no place for text"):
        cut_documents(corpus([5]), length=6, special_tokens=3, seed=0)


def test_earlier_runs_have_filled_rows() -> None:
    split = corpus([7, 30, 4, 12, 1, 22])
    split.order = "arrays"
    plan = cut_documents(split, length=16, special_tokens=2, seed=0)
    filled = laid(split)
    assert [plan.row(k) for k in range(len(plan))] == [filled.row(k) for k in range(len(filled))]


class AlternatingBudget(RowBudget):
    """Room for segments of at most 5, 4, 3, ... tokens."""

    def __init__(self, largest: int) -> None:
        self.largest = largest

    @override
    def capacity(self) -> int:
        return self.largest

    @override
    def add(self, tokens: int) -> None:
        self.largest -= 1


@settings(deadline=None)
@given(
    size=st.integers(1, 400),
    length=st.integers(3, 300),
    new_row=st.sampled_from([partial(TemplateBudget, 40, 3), partial(AlternatingBudget, 5)]),
)
def test_rows_of_one_document_repeat(size: int, length: int, new_row: BudgetFactory) -> None:
    """They are the rows of a loop over its segments."""
    split = corpus([size])
    plan = pack_documents(split, length=length, new_row=new_row, seed=0)
    least = max(1, length // 64)
    expected: list[list[tuple[int, int]]] = []
    position = 0
    room = None
    while position < size:
        if room is None:
            room = new_row()
            expected.append([])
        tokens = min(size - position, room.capacity())
        if tokens < min(least, size - position):
            room = None
            continue
        expected[-1].append((position, position + tokens))
        position += tokens
        room.add(tokens)
    assert [plan.row(k) for k in range(len(plan))] == expected


class Spans(Documents):
    """Documents of given sizes, some of which are empty."""

    def __init__(self, lengths: list[int], order: DataOrder = "keyed") -> None:
        self.order = order
        self.key = ""
        self.ends = np.cumsum([0, *lengths])

    @property
    @override
    def num_documents(self) -> int:
        return len(self.ends) - 1

    @override
    def document_span(self, number: int) -> tuple[int, int]:
        return int(self.ends[number]), int(self.ends[number + 1])

    @override
    def document_spans(self, first: int, last: int) -> Offsets:
        return np.stack([self.ends[first:last], self.ends[first + 1 : last + 1]], axis=1)


def fill(documents: Documents, length: int, new_row: BudgetFactory, seed: int) -> Any:
    """Fill rows with one segment after another, as earlier versions did."""
    least = max(1, length // 64)
    rows: list[list[tuple[int, int]]] = [[]]
    room = new_row()
    order = document_order(documents, seed)
    for index in range(len(order)):
        position, end = documents.document_span(order[index])
        while position < end:
            size = min(end - position, room.capacity())
            if size < min(least, end - position):
                rows.append([])
                room = new_row()
                continue
            rows[-1].append((position, position + size))
            position += size
            room.add(size)
    return rows if rows[-1] else rows[:-1]


def noise_budget(length: int, special_tokens: int) -> BudgetFactory:
    """Return the budget of spans of noise, in rows whose decoder row is a quarter as long."""

    def lengths(tokens: int) -> tuple[int, int]:
        noise = num_noise_tokens(tokens, 0.15)
        spans = num_noise_spans(tokens, 0.15, 3.0)
        return tokens - noise + spans, noise + max(spans, 1)

    new_row, _ = plan_decoder_length(lengths, Spans([50, 20, 1, 200]), length, special_tokens)
    return new_row


any_sizes = st.lists(
    st.one_of(st.integers(0, 3), st.integers(0, 90), st.integers(500, 1200)),
    min_size=2,
    max_size=30,
)


@settings(
    deadline=None,
    max_examples=80,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    lengths=any_sizes,
    length=st.integers(8, 400),
    special_tokens=st.integers(0, 3),
    kind=st.sampled_from(["template", "noise", "prefix", "alternating"]),
    seed=st.integers(0, 99),
    block=st.sampled_from([1, 2, 7, 1000]),
    order=st.sampled_from(["keyed", "arrays"]),
)
def test_rows_are_those_of_a_loop_over_segments(
    lengths: list[int],
    length: int,
    special_tokens: int,
    kind: str,
    seed: int,
    block: int,
    order: DataOrder,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(document_stream, "BLOCK_DOCUMENTS", block)
    monkeypatch.setattr(packing, "SEARCHED_DOCUMENTS", block)
    documents = Spans(lengths, order)
    new_row: BudgetFactory = partial(AlternatingBudget, 9)
    if kind == "template":
        new_row = partial(TemplateBudget, length, special_tokens)
    elif kind == "noise":
        new_row = noise_budget(length, special_tokens + 1)
    elif kind == "prefix":
        new_row = partial(PrefixRowBudget, length, special_tokens)
    assume(new_row().capacity() >= max(1, length // 64))
    plan = pack_documents(documents, length=length, new_row=new_row, seed=seed)
    rows = [plan.row(index) for index in range(len(plan))]
    assert rows == fill(documents, length, new_row, seed)


def test_equal_sources_and_targets_need_no_loop() -> None:
    new_row, decoder_length = plan_decoder_length(
        lambda tokens: (tokens, tokens), Spans([30, 7]), 64, 2
    )
    assert isinstance(new_row(), TemplateBudget)
    assert (new_row().capacity(), decoder_length) == (62, 64)


def test_filled_rows_of_many_documents_are_cached(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A budget of the package is known by its arguments; another one may change without notice."""
    monkeypatch.setattr(document_stream, "CACHED_DOCUMENTS", 0)
    monkeypatch.setenv("ZOO_HOME", str(tmp_path))
    split = corpus([7, 30, 4, 12, 1, 22])
    in_memory = laid(split)
    split.key = "digest"
    new_row = partial(AlternatingBudget, 5)
    pack_documents(split, length=16, new_row=new_row, seed=0)
    assert not list(tmp_path.rglob("rows.npy"))
    for _ in range(2):
        mapped = laid(split)
        assert [mapped.row(k) for k in range(len(mapped))] == [
            in_memory.row(k) for k in range(len(in_memory))
        ]
    laid(split, around=1)
    assert len(list(tmp_path.rglob("starts.npy"))) == 2
    noise = noise_budget(64, 1)
    in_memory = pack_documents(corpus([7, 30, 4, 12, 1, 22]), length=64, new_row=noise, seed=0)
    for _ in range(2):
        mapped = pack_documents(split, length=64, new_row=noise, seed=0)
        assert [mapped.row(k) for k in range(len(mapped))] == [
            in_memory.row(k) for k in range(len(in_memory))
        ]
    assert len(list(tmp_path.rglob("rows.npy"))) == 1
