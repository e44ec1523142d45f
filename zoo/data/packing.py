"""Which stretches of a corpus stand in which row.

Rows have a fixed length. Documents are shuffled once, cut where a row is full, and laid side by
side, so that hardly any row has room left; what shares a row is kept apart by masks and
positions. The layout is a function of the split and the seed alone. Epochs go through its rows
in orders of their own.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from zoo.data.corpus import Offsets
from zoo.data.rng import generator
from zoo.errors import UsageError


class Documents(Protocol):
    """What is laid out, such as a ``Split``."""

    def document_starts(self) -> Offsets:
        """Return where each document starts, and where the last one ends, in tokens."""


class RowBudget(Protocol):
    """A row that is being filled: how much room it has left."""

    def capacity(self) -> int:
        """Return how many tokens of a text still fit; 0 or less for none."""

    def add(self, tokens: int) -> None:
        """Take up the room of a stretch of so many tokens, at most ``most()``."""


BudgetFactory = Callable[[], RowBudget]  # returns an empty row


class TemplateBudget:
    """A row of stretches that each stand between a fixed number of special tokens.

    Args:
        length: places in the row.
        around: special tokens of each stretch.
    """

    def __init__(self, length: int, special_tokens: int) -> None:
        self.free, self.special_tokens = length, special_tokens

    def capacity(self) -> int:
        """See ``RowBudget``."""
        return self.free - self.special_tokens

    def add(self, tokens: int) -> None:
        """See ``RowBudget``."""
        self.free -= tokens + self.special_tokens


@dataclass(frozen=True)
class PackingPlan:
    """Stretches of documents, row by row.

    Attributes:
        rows: (rows + 1,), the first stretch of each row, and how many there are.
        starts: (stretches,), the first token of each, as an offset in the split.
        ends: (stretches,), the token behind its last.
    """

    rows: Offsets
    starts: Offsets
    ends: Offsets

    def __len__(self) -> int:
        """Return how many rows there are."""
        return len(self.rows) - 1

    def row(self, index: int) -> list[tuple[int, int]]:
        """Return the stretches of a row."""
        first, last = self.rows[index : index + 2]
        starts, ends = self.starts[first:last], self.ends[first:last]
        return [(int(a), int(b)) for a, b in zip(starts, ends, strict=True)]


def pack_documents(
    documents: Documents, *, length: int, new_row: BudgetFactory, seed: int
) -> PackingPlan:
    """Fill rows with stretches of documents.

    A document goes on where the row before was full. A row's end stays empty only where less
    than one part in 64 of the row is left, which is too little to learn from.

    Args:
        split: the corpus.
        length: places in a row.
        measure: makes an empty row, which says how much of a document fits.
        seed: of the run.

    Raises:
        UsageError: a row has no place for text.
    """
    least = max(1, length // 64)
    row = new_row()
    if row.capacity() < least:
        raise UsageError(f"rows of {length} tokens have no place for text", "make them longer")
    bounds = documents.document_starts()
    rows = [0]
    starts: list[int] = []
    ends: list[int] = []
    for document in generator(seed, "documents").permutation(len(bounds) - 1).tolist():
        at, end = int(bounds[document]), int(bounds[document + 1])
        while at < end:
            taken = min(end - at, row.capacity())
            if taken < min(least, end - at):
                rows.append(len(starts))
                row = new_row()
                continue
            starts.append(at)
            at += taken
            ends.append(at)
            row.add(taken)
    if len(starts) > rows[-1]:
        rows.append(len(starts))
    return PackingPlan(*(np.array(each, dtype=np.int64) for each in (rows, starts, ends)))


class EpochShuffle:
    """Which row of a layout comes when: every epoch has each row once, in an order of its own.

    Args:
        rows: how many rows there are.
        seed: of the run.
    """

    def __init__(self, num_rows: int, seed: int) -> None:
        self.num_rows, self.seed = num_rows, seed
        self._epoch, self._order = -1, np.zeros(0, dtype=np.int64)

    def __getitem__(self, number: int) -> int:
        """Return the row that is the ``number``-th of the endless stream."""
        epoch, place = divmod(number, self.num_rows)
        if epoch != self._epoch:
            self._order = generator(self.seed, "order", epoch).permutation(self.num_rows)
            self._epoch = epoch
        return int(self._order[place])
