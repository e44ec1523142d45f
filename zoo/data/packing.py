"""Packing of documents into rows of fixed length, and the order of rows in each epoch."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from zoo.data.corpus import Offsets
from zoo.data.rng import generator
from zoo.errors import UsageError
from zoo.overrides import override


class Documents(Protocol):
    """Documents to pack, such as a ``Split``."""

    def document_starts(self) -> Offsets:
        """Return the start of each document in tokens, and the end, (documents + 1,), int64."""


class ReadableDocuments(Documents, Protocol):
    """Documents whose token ids can be read."""

    def read(self, start: int, end: int) -> NDArray[np.int64]:
        """Return the token ids between two offsets of one document, (end - start,), int64."""


class ConcatenatedDocuments:
    """The documents of a split in random order, concatenated to one without separators."""

    # This is ``reduce_concat_tokens`` of the code released with Raffel et al. 2020
    # (arXiv:1910.10683, preprocessors.py), which concatenates 128 documents at a time.

    def __init__(self, split: ReadableDocuments, seed: int) -> None:
        bounds = np.asarray(split.document_starts())
        order = generator(seed, "documents").permutation(len(bounds) - 1)
        self.split = split
        sizes = np.diff(bounds)[order]
        self._ends = np.cumsum(sizes)
        # What to add to an offset, to get the offset in the split.
        self._shifts = bounds[:-1][order] - (self._ends - sizes)

    def document_starts(self) -> Offsets:
        """Return the start and the end of the only document, (2,), int64."""
        return np.array([0, *self._ends[-1:]], dtype=np.int64)

    def read(self, start: int, end: int) -> NDArray[np.int64]:
        """Return the token ids between two offsets, (end - start,), int64."""
        document = int(np.searchsorted(self._ends, start, side="right"))
        pieces = []
        while start < end:
            stop = min(end, int(self._ends[document]))
            shift = int(self._shifts[document])
            if start < stop:
                pieces.append(self.split.read(start + shift, stop + shift))
            start = stop
            document = document + 1
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


@dataclass(frozen=True)
class PackingPlan:
    """Segments of documents by row."""

    rows: Offsets  # first segment of each row, and the number of segments, (rows + 1,), int64
    starts: Offsets  # token offset of each segment in the split, (segments,), int64
    ends: Offsets  # end of each segment, (segments,), int64

    def __len__(self) -> int:
        return len(self.rows) - 1

    def row(self, index: int) -> list[tuple[int, int]]:
        """Return start and end of the segments of a row."""
        first, last = self.rows[index : index + 2]
        starts = self.starts[first:last]
        ends = self.ends[first:last]
        return [(int(start), int(end)) for start, end in zip(starts, ends, strict=True)]


def pack_documents(
    documents: Documents, *, length: int, new_row: BudgetFactory, seed: int
) -> PackingPlan:
    """Fill rows with segments of documents.

    Documents are shuffled once, cut where a row is full, and concatenated, so that rows have almost
    no padding; masks and positions separate the segments of a row. The plan is a function of the
    split and the seed. Each epoch visits the rows in a different order.
    """
    # A document that does not fit continues in the next row. The end of a row is padded only if
    # less than 1/64 of the row is left, too short a context to train on.
    least = max(1, length // 64)
    row = new_row()
    if row.capacity() < least:
        raise UsageError(f"rows of {length} tokens have no place for text", "make them longer")
    bounds = documents.document_starts()
    rows = [0]
    starts: list[int] = []
    ends: list[int] = []
    for document in generator(seed, "documents").permutation(len(bounds) - 1).tolist():
        position = int(bounds[document])
        end = int(bounds[document + 1])
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
    return PackingPlan(
        rows=np.array(rows, dtype=np.int64),
        starts=np.array(starts, dtype=np.int64),
        ends=np.array(ends, dtype=np.int64),
    )


class EpochShuffle:
    """Endless sequence of row indices: every epoch has each row once, in a new random order."""

    def __init__(self, num_rows: int, seed: int) -> None:
        self.num_rows = num_rows
        self.seed = seed
        self._epoch = -1
        self._order = np.zeros(0, dtype=np.int64)

    def __getitem__(self, number: int) -> int:
        """Return the row at an index of the sequence."""
        epoch, position = divmod(number, self.num_rows)
        if epoch != self._epoch:
            self._order = self.epoch(epoch)
            self._epoch = epoch
        return int(self._order[position])

    def rows(self, epoch: int) -> NDArray[np.int64]:
        """Return the rows of an epoch in any order, (num_rows,); by default 0 to ``num_rows``."""
        return np.arange(self.num_rows)

    def epoch(self, epoch: int) -> NDArray[np.int64]:
        """Return the rows of an epoch in its order, (num_rows,)."""
        return generator(self.seed, "order", epoch).permutation(self.rows(epoch))
