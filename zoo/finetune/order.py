"""Random order of the rows of labelled data."""

from collections import deque
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from zoo.data.packing import EpochShuffle
from zoo.data.readers.text_groups import TextGroup
from zoo.data.rng import generator

EXCHANGED = 100  # batches in which a place for the last rows of an epoch is sought
Rows = NDArray[np.int64]


class ProportionalMixture(EpochShuffle):
    """Epochs over several datasets, in proportion to their sizes, with a limit on the largest.

    Examples-proportional mixing (Raffel et al. 2020, arXiv:1910.10683, section 3.5.2): of a
    dataset of ``e`` rows, an epoch has ``min(e, limit)``, which make the paper's rate exact rather
    than expected. A dataset above the limit continues in the next epoch where it stopped, in a new
    order whenever it begins anew.

    Args:
        datasets: dataset of each row, from 0, (rows,).
        limit: the limit; ``None`` for none.
        seed: seed of the run.
    """

    def __init__(self, datasets: NDArray[np.integer], limit: int | None, seed: int) -> None:
        self.members = [np.flatnonzero(datasets == number) for number in np.unique(datasets)]
        self.counts = [min(len(rows), limit or len(rows)) for rows in self.members]
        super().__init__(sum(self.counts), seed)

    def rows(self, epoch: int) -> Rows:
        """See ``EpochShuffle``."""
        return np.concatenate(
            [self._part(number, epoch * count, count) for number, count in enumerate(self.counts)]
        )

    def _part(self, number: int, start: int, count: int) -> Rows:
        """Return some rows of the endless sequence of a dataset."""
        members, pieces = self.members[number], list[Rows]()
        while count:
            turn, place = divmod(start, len(members))
            order = generator(self.seed, "mixture", number, turn).permutation(members)
            pieces.append(order[place : place + count])
            start, count = start + len(pieces[-1]), count - len(pieces[-1])
        return np.concatenate(pieces)


class NoDuplicatesOrder(ProportionalMixture):
    """Order in which no batch has a text twice, as far as the data allows.

    A row with a text of the batch waits for the next one (``NoDuplicatesBatchSampler`` of
    sentence-transformers). Epochs consist of whole batches: rows that remain begin the next one.

    Args:
        texts: number of each text of a row, the same for equal texts, (rows, columns).
        batch_size: number of rows of a batch, at most that of all rows.
        seed: seed of the run.
    """

    def __init__(self, texts: NDArray[np.int64], batch_size: int, seed: int) -> None:
        whole = len(texts) // batch_size * batch_size
        super().__init__(np.zeros(len(texts), np.int64), whole, seed)
        self.batch_size = batch_size
        self.texts = [frozenset(row) for row in texts.tolist()]

    def duplicates(self, epoch: int) -> int:
        """Return the number of rows of an epoch with a text of another row of their batch."""
        batches = self.epoch(epoch).reshape(-1, self.batch_size).tolist()
        return sum(
            not self._fits(row, [other for other in batch if other != row])
            for batch in batches
            for row in batch
        )

    def epoch(self, epoch: int) -> Rows:
        """See ``EpochShuffle``."""
        waiting, batches = deque(super().epoch(epoch).tolist()), list[list[int]]()
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


def text_numbers(samples: Sequence[TextGroup]) -> Rows:
    """Return a number for each text, equal ones for equal texts, (rows, columns)."""
    numbers: dict[str, int] = {}
    return np.array(
        [[numbers.setdefault(text, len(numbers)) for text in s.texts] for s in samples], np.int64
    )
