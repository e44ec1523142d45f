"""Order of rows of different lengths, so that the rows of a batch are of similar length."""

from collections import deque
from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from zoo.data.rng import generator

# batches that are sorted together, at most; also at most a quarter of an epoch, since in batches by
# length alone, the loss of a step is that of short or of long texts (LengthGroupedSampler)
WINDOW = 50
EXCHANGED = 100  # batches in which a place for the last rows of an epoch is sought
Rows = NDArray[np.int64]


class Epochs(Protocol):
    """The rows of each epoch."""

    def __len__(self) -> int:
        """Return the number of rows of an epoch."""

    def rows(self, epoch: int) -> Rows:
        """Return the rows of an epoch, in any order."""


class AllRows:
    """Epochs that have each row once.

    Args:
        count: number of rows.
    """

    def __init__(self, count: int) -> None:
        self.count = count

    def __len__(self) -> int:
        """See ``Epochs``."""
        return self.count

    def rows(self, epoch: int) -> Rows:
        """See ``Epochs``."""
        return np.arange(self.count)


class ProportionalMixture:
    """Epochs over several data sets, in proportion to their sizes, with a limit on the largest.

    Examples-proportional mixing (Raffel et al. 2020, arXiv:1910.10683, section 3.5.2): of a data
    set of ``e`` rows, an epoch has ``min(e, limit)``, which make the paper's rate exact rather than
    expected. A data set above the limit goes on in the next epoch where it stopped, in a new order
    whenever it begins anew.

    Args:
        datasets: data set of each row, from 0, (rows,).
        limit: the limit; ``None`` for none.
        seed: seed of the run.
    """

    def __init__(self, datasets: NDArray[np.integer], limit: int | None, seed: int) -> None:
        self.seed = seed
        self.members = [np.flatnonzero(datasets == number) for number in np.unique(datasets)]
        self.counts = [min(len(rows), limit or len(rows)) for rows in self.members]

    def __len__(self) -> int:
        """See ``Epochs``."""
        return sum(self.counts)

    def rows(self, epoch: int) -> Rows:
        """See ``Epochs``."""
        return np.concatenate(
            [self._part(number, epoch * count, count) for number, count in enumerate(self.counts)]
        )

    def _part(self, number: int, start: int, count: int) -> Rows:
        """Return some rows of the endless sequence of a data set."""
        members, pieces = self.members[number], list[Rows]()
        while count:
            turn, place = divmod(start, len(members))
            order = generator(self.seed, "mixture", number, turn).permutation(members)
            pieces.append(order[place : place + count])
            start, count = start + len(pieces[-1]), count - len(pieces[-1])
        return np.concatenate(pieces)


class LengthGroupedOrder:
    """Endless sequence of row indices: every epoch has its rows once, in a new order.

    An epoch is shuffled and cut into windows of 50 batches, or of a quarter of the epoch if that is
    less, as by ``LengthGroupedSampler`` of transformers. The rows of a window are sorted by length
    and cut into batches, and the batches of the epoch are shuffled. If a batch does not
    divide an epoch, the first batch of the next one is filled with random rows.

    Args:
        lengths: number of tokens of each row, (rows,).
        batch_size: number of rows of a step.
        seed: seed of the run.
        epochs: rows of each epoch; by default all.
    """

    def __init__(
        self,
        lengths: NDArray[np.int64],
        batch_size: int,
        seed: int,
        epochs: Epochs | None = None,
    ) -> None:
        self.lengths, self.batch_size, self.seed = lengths, batch_size, seed
        self.epochs = AllRows(len(lengths)) if epochs is None else epochs
        self._epoch, self._order = -1, np.zeros(0, dtype=np.int64)

    @property
    def rows_per_epoch(self) -> int:
        """Number of rows of an epoch."""
        return len(self.epochs)

    def __getitem__(self, number: int) -> int:
        """Return the row at a position of the sequence."""
        epoch, place = divmod(number, self.rows_per_epoch)
        if epoch != self._epoch:
            self._order, self._epoch = self.epoch(epoch), epoch
        return int(self._order[place])

    def _window(self) -> int:
        """Return the number of batches that are sorted together."""
        return max(1, min(self.rows_per_epoch // (4 * self.batch_size), WINDOW))

    def epoch(self, epoch: int) -> Rows:
        """Return the rows of an epoch in order, (rows of an epoch,)."""
        rows, size = self.rows_per_epoch, self.batch_size
        rng = generator(self.seed, "order", epoch)
        shuffled = rng.permutation(self.epochs.rows(epoch))
        first = min(-epoch * rows % size, rows)  # rows that complete the batch before
        whole = (rows - first) // size * size
        middle = [
            window[np.argsort(self.lengths[window], kind="stable")]
            for window in _split(shuffled[first : first + whole], size * self._window())
        ]
        batches = self.arrange(np.concatenate([*middle, np.zeros(0, np.int64)])).reshape(-1, size)
        mixed = batches[rng.permutation(len(batches))].ravel()
        return np.concatenate([shuffled[:first], mixed, shuffled[first + whole :]])

    def arrange(self, rows: Rows) -> Rows:
        """Return the rows of whole batches as the batches are to have them; here unchanged.

        Args:
            rows: rows of similar length one after another, (batches * batch_size,).
        """
        return rows


class NoDuplicatesOrder(LengthGroupedOrder):
    """Order in which no batch has a text twice, as far as the data allows.

    A row with a text of the batch waits for the next one (``NoDuplicatesBatchSampler`` of
    sentence-transformers). Epochs consist of whole batches: rows that remain begin the next one.

    Args:
        lengths: see ``LengthGroupedOrder``.
        batch_size: see there; at most the number of rows.
        seed: see there.
        texts: number of each text of a row, the same for equal texts, (rows, columns).
    """

    def __init__(
        self,
        lengths: NDArray[np.int64],
        batch_size: int,
        seed: int,
        texts: NDArray[np.int64],
    ) -> None:
        whole = len(lengths) // batch_size * batch_size
        epochs = ProportionalMixture(np.zeros(len(lengths), np.int64), whole, seed)
        super().__init__(lengths, batch_size, seed, epochs)
        self.texts = [frozenset(row) for row in texts.tolist()]

    def duplicates(self, epoch: int) -> int:
        """Return the number of rows of an epoch with a text of another row of their batch."""
        batches = _split(self.epoch(epoch), self.batch_size)
        return sum(
            not self._fits(row, [other for other in batch if other != row])
            for batch in (batch.tolist() for batch in batches)
            for row in batch
        )

    def arrange(self, rows: Rows) -> Rows:
        """See ``LengthGroupedOrder``."""
        waiting, batches = deque(rows.tolist()), list[list[int]]()
        while waiting:
            batch, passed = list[int](), list[int]()
            while waiting and len(batch) < self.batch_size:
                row = waiting.popleft()
                (batch if self._fits(row, batch) else passed).append(row)
            missing = self.batch_size - len(batch)
            batches.append(batch)
            for row in passed[:missing]:  # no later row fits
                batch.append(self._exchange(row, batch, batches[-EXCHANGED:-1]))
            waiting.extendleft(reversed(passed[missing:]))
        return np.array(batches, np.int64).ravel()

    def _fits(self, row: int, batch: Sequence[int]) -> bool:
        return all(self.texts[row].isdisjoint(self.texts[other]) for other in batch)

    def _exchange(self, row: int, batch: list[int], earlier: list[list[int]]) -> int:
        """Put a row into an earlier batch, and return one of that which fits, or else the row."""
        for other in reversed(earlier):
            if self._fits(row, other):
                for place, candidate in enumerate(other):
                    if self._fits(candidate, batch):
                        other[place] = row
                        return candidate
        return row


def _split(rows: Rows, size: int) -> Sequence[Rows]:
    return [rows[start : start + size] for start in range(0, len(rows), size)]
