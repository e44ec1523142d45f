"""Random order of the rows of labelled data."""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from zoo.data.mixture import MixtureOrder
from zoo.data.order import RowOrder
from zoo.data.rng import generator
from zoo.overrides import override

Rows = NDArray[np.int64]


class EpochShuffle(RowOrder):
    """Endless sequence of row indices: every epoch has each row once, in a new random order."""

    def __init__(self, num_rows: int, seed: int) -> None:
        self.num_rows = num_rows
        self.seed = seed
        self._epoch = -1
        self._order = np.zeros(0, dtype=np.int64)

    @override
    def __getitem__(self, number: int) -> int:
        epoch, position = divmod(number, self.num_rows)
        if epoch != self._epoch:
            self._order = self.epoch(epoch)
            self._epoch = epoch
        return int(self._order[position])

    def rows(self, epoch: int) -> Rows:
        """Return the rows of an epoch in any order, (num_rows,); by default 0 to ``num_rows``."""
        return np.arange(self.num_rows)

    def epoch(self, epoch: int) -> Rows:
        """Return the rows of an epoch in its order, (num_rows,)."""
        return generator(self.seed, "order", epoch).permutation(self.rows(epoch))


class WeightedMixture(EpochShuffle):
    """Rows of several sources with exact shares; see ``zoo.data.mixture``.

    An epoch has as many rows as all sources together.

    Args:
        sources: source -> indices of its rows, (n,).
        counts: source -> number of its rows in a cycle.
        seed: seed of the run.
    """

    def __init__(self, sources: Mapping[str, Rows], counts: Mapping[str, int], seed: int) -> None:
        sizes = {name: len(rows) for name, rows in sources.items()}
        super().__init__(sum(sizes.values()), seed)
        self._rows = np.concatenate(list(sources.values()))
        self._mixture = MixtureOrder("keyed", sizes, [(0, counts)], seed)

    @override
    def __getitem__(self, number: int) -> int:
        return int(self._rows[self._mixture[number]])


class ProportionalMixture(EpochShuffle):
    """Epochs over several datasets, in proportion to their sizes, with a limit on the largest.

    Examples-proportional mixing (Raffel et al. 2020, arXiv:1910.10683, section 3.5.2): an epoch
    has ``min(e, limit)`` of the ``e`` rows of a dataset, so that the paper's rate is exact
    instead of expected. A dataset above the limit continues in the next epoch where it stopped,
    and gets a new order after each pass. ``datasets`` has the dataset of each row, (rows,).
    """

    def __init__(self, datasets: NDArray[np.integer], limit: int | None, seed: int) -> None:
        self.members = [np.flatnonzero(datasets == number) for number in np.unique(datasets)]
        self.counts = [min(len(rows), limit or len(rows)) for rows in self.members]
        super().__init__(sum(self.counts), seed)

    @override
    def rows(self, epoch: int) -> Rows:
        return np.concatenate(
            [self._part(number, epoch * count, count) for number, count in enumerate(self.counts)]
        )

    def _part(self, number: int, start: int, count: int) -> Rows:
        """Return some rows of the endless sequence of a dataset."""
        members = self.members[number]
        pieces = list[Rows]()
        while count:
            turn, place = divmod(start, len(members))
            order = generator(self.seed, "mixture", number, turn).permutation(members)
            pieces.append(order[place : place + count])
            start = start + len(pieces[-1])
            count = count - len(pieces[-1])
        return np.concatenate(pieces)
