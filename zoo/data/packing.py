"""Rows of fixed length, as segments of documents.

Documents are read in random order, see ``zoo.data.document_stream``. Where each segment of a row
has the same number of special tokens, rows are stretches of equal size of the stream of documents
(``cut_documents``), so that nothing is planned: a row follows from its index. Where the room that a
text takes depends on its size in another way, rows are filled one after another
(``pack_documents``); the rows of one long document repeat, and all others are planned once a host,
in blocks of documents, and read from a file.
"""

from array import array
from collections.abc import Callable, Iterator
from functools import partial
from itertools import pairwise
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from zoo.data.cached_arrays import cached_growing_arrays
from zoo.data.document_stream import Documents, DocumentStream, plan_key
from zoo.data.offsets import OffsetReader, Offsets
from zoo.errors import UsageError
from zoo.overrides import override
from zoo.version import __version__

NO_OFFSETS = np.empty(0, np.int64)
SEARCHED_DOCUMENTS = 128  # Documents among which the next one that begins a row is searched for.


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
    return EqualStretchRows(DocumentStream(documents, seed, gap=special_tokens), size)


def no_place_for_text(length: int) -> UsageError:
    """Return the error for rows that are too short."""
    return UsageError(f"rows of {length} tokens have no place for text", "make them longer")


class EqualStretchRows(RowPlan):
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


class StretchRows(RowPlan):
    """Rows that are stretches of a stream of documents, of which each ends where the next begins.

    Args:
        stream: the documents.
        size: largest number of places of a row.
        starts: first place of each row, (rows,), int64.
    """

    def __init__(self, stream: DocumentStream, size: int, starts: Offsets) -> None:
        self._stream = stream
        self._size = size
        self._starts = OffsetReader(starts)

    @override
    def __len__(self) -> int:
        return len(self._starts)

    @override
    def row(self, index: int) -> list[tuple[int, int]]:
        start = self._starts[index]
        end = min(start + self._size, len(self._stream))
        if index + 1 < len(self):
            end = min(end, self._starts[index + 1])
        return self._stream.spans(start, end)


class SegmentRows(RowPlan):
    """Rows of segments of a stream of documents.

    Args:
        stream: the documents, without gaps.
        rows: number of segments before the end of each row, (rows,), int64.
        ends: end of each segment in the stream, (segments,), int64.
    """

    def __init__(self, stream: DocumentStream, rows: Offsets, ends: Offsets) -> None:
        self._stream = stream
        self._rows = OffsetReader(rows)
        self._ends = OffsetReader(ends)

    @override
    def __len__(self) -> int:
        return len(self._rows)

    @override
    def row(self, index: int) -> list[tuple[int, int]]:
        first = 0
        start = 0
        if index:
            first = self._rows[index - 1]
            start = self._ends[first - 1]
        spans: list[tuple[int, int]] = []
        for end in self._ends.part(first, self._rows[index]).tolist():
            spans += self._stream.spans(start, end)
            start = end
        return spans


class RepeatedRows(RowPlan):
    """Rows of one document: all have segments of the same sizes, except the last ones.

    Args:
        start: address of the start of the document.
        sizes: sizes of the segments of a row.
        count: number of such rows.
        last_rows: the rows after them.
    """

    def __init__(
        self, start: int, sizes: list[int], count: int, last_rows: list[list[tuple[int, int]]]
    ) -> None:
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
            return self.last_rows[index - self.count]
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

    # Only the rows of this package's budgets are known to depend on its version.
    key = ""
    if isinstance(new_row, partial) and new_row.func.__module__.startswith("zoo."):
        key = plan_key(documents, seed, "stretches", __version__, least, repr(new_row))
    row = new_row()
    if type(row) is TemplateBudget:
        stream = DocumentStream(documents, seed, gap=row.special_tokens)

        def row_starts() -> Iterator[dict[str, Offsets]]:
            for starts in _row_starts(stream, row.capacity(), least):
                yield {"starts": starts}

        arrays = cached_growing_arrays("rows", key, {"starts": NO_OFFSETS}, row_starts)
        return StretchRows(stream, row.capacity(), arrays["starts"])
    stream = DocumentStream(documents, seed)

    def segments() -> Iterator[dict[str, Offsets]]:
        return _fill_rows(stream, new_row, least)

    empty_arrays = {"rows": NO_OFFSETS, "ends": NO_OFFSETS}
    arrays = cached_growing_arrays("rows", key, empty_arrays, segments)
    return SegmentRows(stream, arrays["rows"], arrays["ends"])


def _row_starts(stream: DocumentStream, size: int, least: int) -> Iterator[Offsets]:
    """Yield the first places of successive rows, in blocks, for segments with fixed special tokens.

    Args:
        stream: the documents, with a gap of the special tokens of a segment after each.
        size: number of places of a full row.
        least: least number of units of a segment that is cut, or of an empty rest of a row.
    """
    # A row ends ``size`` places after its start. Where that is in a gap, or in the first units of a
    # document, too few for a segment, the next row begins with the document. Between two such
    # documents rows are ``size`` places apart, so that they follow from the number of the next one,
    # which is searched for in many documents at once.
    start = 0
    for document_starts, document_ends in stream.document_blocks():
        lowest_ends = document_starts - stream.gap
        highest_ends = np.minimum(document_starts + least, document_ends)
        firsts = [start]
        counts = []
        document = 0
        while document < len(document_starts):
            part = slice(document, document + SEARCHED_DOCUMENTS)
            rows = -((firsts[-1] - lowest_ends[part]) // size)
            begins_row = firsts[-1] + rows * size < highest_ends[part]
            # The document that the first row begins with is not the next one.
            begins_row &= rows > 0
            place = int(begins_row.argmax())
            if begins_row[place]:
                counts.append(int(rows[place]))
                firsts.append(int(document_starts[document + place]))
                document += place + 1
            else:
                document += SEARCHED_DOCUMENTS
        if len(document_ends):
            # The last stretch goes on in the next block.
            last_count = max(0, -(-(int(document_ends[-1]) - firsts[-1]) // size) - 1)
            counts.append(last_count)
            start = firsts[-1] + last_count * size
            ends = np.cumsum(counts)
            numbers = np.arange(ends[-1]) - np.repeat(ends - counts, counts)
            yield np.repeat(firsts, counts) + numbers * size
    if len(stream):
        yield np.array([start])


def _fill_rows(
    stream: DocumentStream, new_row: BudgetFactory, least: int
) -> Iterator[dict[str, Offsets]]:
    """Fill rows with successive documents; a segment that is cut has at least ``least`` units.

    Yields:
        Blocks of the arrays of ``SegmentRows``.
    """
    # The room that a segment takes may depend on its size in any way, so that the place of a row
    # depends on all rows before it. Only a block of documents is in memory.
    row = new_row()
    position = 0
    segment_count = 0
    row_end = 0
    for starts, document_ends in stream.document_blocks():
        rows = array("q")
        ends = array("q")
        for document_size in (document_ends - starts).tolist():
            remaining = document_size
            while remaining:
                size = row.capacity()
                if size >= remaining:
                    size = remaining
                elif size < least:
                    row_end = segment_count
                    rows.append(row_end)
                    row = new_row()
                    continue
                position += size
                remaining -= size
                ends.append(position)
                segment_count += 1
                row.add(size)
        yield {"rows": np.array(rows, np.int64), "ends": np.array(ends, np.int64)}
    if segment_count > row_end:
        yield {"rows": np.array([segment_count]), "ends": np.empty(0, np.int64)}


def _repeated_rows(start: int, end: int, new_row: BudgetFactory, least: int) -> RowPlan:
    """Return the rows of one document, filled as in ``_fill_rows``."""
    row = new_row()
    sizes = []
    while row.capacity() >= least:
        sizes.append(row.capacity())
        row.add(sizes[-1])
    # The row before the last one may have a segment more: the last few units, where they fit.
    count = max(0, (end - start) // sum(sizes) - 1)
    last_rows: list[list[tuple[int, int]]] = [[]]
    position = start + count * sum(sizes)
    row = new_row()
    while position < end:
        size = min(end - position, row.capacity())
        if size < min(least, end - position):
            last_rows.append([])
            row = new_row()
            continue
        last_rows[-1].append((position, position + size))
        position += size
        row.add(size)
    if not last_rows[-1]:
        last_rows.pop()
    return RepeatedRows(start, sizes, count, last_rows)
