"""Rows of fixed length, as segments of documents.

Documents are read in random order, see ``zoo.data.document_stream``. Where each segment of a row
has the same number of special tokens, rows are stretches of equal size of the stream of documents
(``cut_documents``), so that nothing is planned: a row follows from its index. Where the room that a
text takes depends on its size in another way, rows are filled one after another
(``pack_documents``); the rows of one long document repeat, and all others are planned once a host
and mapped.
"""

from array import array
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import pairwise
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from zoo.data.cached_arrays import cached_arrays
from zoo.data.document_stream import (
    BLOCK_DOCUMENTS,
    Documents,
    DocumentStream,
    document_order,
    plan_key,
)
from zoo.data.offsets import OffsetReader, Offsets
from zoo.errors import UsageError
from zoo.overrides import override
from zoo.version import __version__


class ReadableDocuments(Documents, Protocol):
    """Documents whose token ids can be read."""

    def read(self, start: int, end: int) -> NDArray[np.int64]:
        """Return the token ids between two addresses of one document, (end - start,), int64."""


class ConcatenatedDocuments(Documents):
    """The documents of a split in random order, concatenated to one without separators."""

    # This is ``reduce_concat_tokens`` of the code released with Raffel et al. 2020
    # (arXiv:1910.10683, preprocessors.py), which concatenates 128 documents at a time.

    def __init__(self, split: ReadableDocuments, seed: int) -> None:
        self.split = split
        self.order = split.order
        self.key = ""  # There is one document, whose rows are not planned.
        self.stream = DocumentStream(split, seed)

    @property
    @override
    def num_documents(self) -> int:
        return 1

    @override
    def document_span(self, number: int) -> tuple[int, int]:
        return 0, len(self.stream)

    @override
    def document_spans(self, first: int, last: int) -> Offsets:
        spans = [self.document_span(number) for number in range(first, last)]
        return np.array(spans, dtype=np.int64).reshape(-1, 2)

    def read(self, start: int, end: int) -> NDArray[np.int64]:
        """Return the token ids between two places of the stream, (end - start,), int64."""
        pieces = [self.split.read(*span) for span in self.stream.spans(start, end)]
        return np.concatenate(pieces)


class RowBudget(Protocol):
    """The free tokens of a row that is being filled."""

    def capacity(self) -> int:
        """Return the largest number of text tokens that still fit; 0 or less for none."""

    def add(self, tokens: int) -> None:
        """Add a segment of ``tokens`` text tokens, at most ``capacity()``."""


BudgetFactory = Callable[[], RowBudget]  # returns an empty row


class TemplateBudget(RowBudget):
    """Budget of a row whose segments each have a fixed number of special tokens."""

    def __init__(self, length: int, special_tokens: int) -> None:
        self.free = length
        self.special_tokens = special_tokens

    @override
    def capacity(self) -> int:
        return self.free - self.special_tokens

    @override
    def add(self, tokens: int) -> None:
        self.free -= tokens + self.special_tokens


class RowPlan(Protocol):
    """The segments of documents in each row."""

    def __len__(self) -> int:
        """Return the number of rows."""

    def row(self, index: int) -> list[tuple[int, int]]:
        """Return start and end of the segments of a row, as addresses."""


def cut_documents(documents: Documents, *, length: int, special_tokens: int, seed: int) -> RowPlan:
    """Cut documents into rows, whose segments each have a number of special tokens.

    Documents are shuffled once and concatenated, with a gap for the special tokens of a segment
    between them, and cut where a row is full. A row that begins or ends in a gap has padding, at
    most twice ``special_tokens``, as the last row has. Runs with the earlier order of documents
    have the rows of ``pack_documents``.
    """
    if documents.order == "arrays":
        new_row = partial(TemplateBudget, length, special_tokens)
        return pack_documents(documents, length=length, new_row=new_row, seed=seed)
    size = length - special_tokens
    # A row is never inside a gap.
    if size <= special_tokens:
        raise no_place_for_text(length)
    return StreamRows(DocumentStream(documents, seed, gap=special_tokens), size)


def no_place_for_text(length: int) -> UsageError:
    """Return the error for rows that are too short."""
    return UsageError(f"rows of {length} tokens have no place for text", "make them longer")


class StreamRows(RowPlan):
    """Rows that are stretches of equal size of a stream of documents."""

    def __init__(self, stream: DocumentStream, size: int) -> None:
        self.stream = stream
        self.size = size

    @override
    def __len__(self) -> int:
        return -(-len(self.stream) // self.size)

    @override
    def row(self, index: int) -> list[tuple[int, int]]:
        start = index * self.size
        return self.stream.spans(start, min(start + self.size, len(self.stream)))


class PackingPlan(RowPlan):
    """Segments of documents by row.

    Args:
        rows: first segment of each row, and the number of segments, (rows + 1,), int64.
        starts: address of the start of each segment, (segments,), int64.
        ends: end of each segment, (segments,), int64.
    """

    def __init__(self, rows: Offsets, starts: Offsets, ends: Offsets) -> None:
        self._rows = OffsetReader(rows)
        self._starts = OffsetReader(starts)
        self._ends = OffsetReader(ends)

    @override
    def __len__(self) -> int:
        return len(self._rows) - 1

    @override
    def row(self, index: int) -> list[tuple[int, int]]:
        first, last = self._rows.pair(index)
        starts = self._starts.part(first, last).tolist()
        ends = self._ends.part(first, last).tolist()
        return list(zip(starts, ends, strict=True))


class RepeatedRows(RowPlan):
    """Rows of one document: all have segments of the same sizes, except the last ones.

    Args:
        start: address of the start of the document.
        sizes: sizes of the segments of a row.
        count: number of such rows.
        last_rows: the rows after them.
    """

    def __init__(self, start: int, sizes: list[int], count: int, last_rows: PackingPlan) -> None:
        self.start = start
        self.bounds = np.cumsum([0, *sizes]).tolist()
        self.count = count
        self.last_rows = last_rows

    @override
    def __len__(self) -> int:
        return self.count + len(self.last_rows)

    @override
    def row(self, index: int) -> list[tuple[int, int]]:
        if index >= self.count:
            return self.last_rows.row(index - self.count)
        start = self.start + index * self.bounds[-1]
        ends = [start + bound for bound in self.bounds]
        return list(pairwise(ends))


def pack_documents(
    documents: Documents, *, length: int, new_row: BudgetFactory, seed: int
) -> RowPlan:
    """Fill rows with segments of documents.

    Documents are shuffled once, cut where a row is full, and concatenated, so that rows have almost
    no padding; masks and positions separate the segments of a row. The plan is a function of the
    split and the seed. Each epoch visits the rows in a different order.
    """
    # A document that does not fit continues in the next row. The end of a row is padded only if
    # less than 1/64 of the row is left, too short a context to train on.
    least = max(1, length // 64)
    if new_row().capacity() < least:
        raise no_place_for_text(length)
    if documents.num_documents == 1:
        start, end = documents.document_span(0)
        return _repeated_rows(start, end, new_row, least)

    def make() -> dict[str, Offsets]:
        return _fill_rows(_shuffled_spans(documents, seed), new_row, least)

    # Only the rows of this package's budgets are known to depend on its version.
    key = ""
    if isinstance(new_row, partial) and new_row.func.__module__.startswith("zoo."):
        key = plan_key(documents, seed, "rows", __version__, least, repr(new_row))
    if not key:
        return PackingPlan(**make())
    return PackingPlan(**cached_arrays("rows", key, make))


def _shuffled_spans(documents: Documents, seed: int) -> Iterator[tuple[int, int]]:
    """Yield start and end of each document in random order."""
    order = document_order(documents, seed)
    for first in range(0, len(order), BLOCK_DOCUMENTS):
        places = np.arange(first, min(first + BLOCK_DOCUMENTS, len(order)))
        for document in order.take(places).tolist():
            yield documents.document_span(document)


def _fill_rows(
    spans: Iterable[tuple[int, int]], new_row: BudgetFactory, least: int
) -> dict[str, Offsets]:
    """Fill rows with successive documents; a segment that is cut has at least ``least`` units.

    Returns:
        The arguments of ``PackingPlan``.
    """
    row = new_row()
    rows = array("q", [0])
    starts = array("q")
    ends = array("q")
    for position, end in spans:
        while position < end:
            size = min(end - position, row.capacity())
            if size < min(least, end - position):
                rows.append(len(starts))
                row = new_row()
                continue
            starts.append(position)
            position += size
            ends.append(position)
            row.add(size)
    if len(starts) > rows[-1]:
        rows.append(len(starts))
    return {
        "rows": np.frombuffer(rows, dtype=np.int64),
        "starts": np.frombuffer(starts, dtype=np.int64),
        "ends": np.frombuffer(ends, dtype=np.int64),
    }


def _repeated_rows(start: int, end: int, new_row: BudgetFactory, least: int) -> RowPlan:
    """Return the rows that ``_fill_rows`` makes of one document."""
    row = new_row()
    sizes = []
    while row.capacity() >= least:
        sizes.append(row.capacity())
        row.add(sizes[-1])
    # The row before the last one may have a segment more: the last few units, where they fit.
    count = max(0, (end - start) // sum(sizes) - 1)
    last_rows = PackingPlan(**_fill_rows([(start + count * sum(sizes), end)], new_row, least))
    return RepeatedRows(start, sizes, count, last_rows)
