"""Mixtures of several sources: how often each is read, and which row of which source comes when.

The source of a row is a function of its position in a run, like everything else of a run's order
(``zoo.data.order``). Sources are read in *cycles*, in each of which every source has an exact
number of rows. The rows of a source are evenly spread over a cycle: before any row, each source has
had its share of the rows up to one row. A source's own rows are shuffled, and shuffled anew in each
of its epochs; a stream has its rows in an order of its own (``zoo.data.streams``). How many rows of
a source come before a position follows from the number of the cycle and the place in it, so that a
run begins anywhere without reading what comes before.
"""

import math
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from zoo.data.order import DataOrder, EpochOrder, KeyedPermutation, RowOrder
from zoo.data.streams.lane_order import LaneOrder, StepRows
from zoo.overrides import override

# Number of indices that a stream has in a mixture. It has no last row, and no run reads as many.
STREAM_ROWS = 1 << 40


@dataclass(frozen=True)
class StreamSteps:
    """The lanes of the streams of a mixture, and the steps that read them.

    Attributes:
        lanes: stream -> number of its lanes.
        rows_per_step: number of rows of a step, of all sources.
        first_row: number of rows before the first of these steps.
    """

    lanes: Mapping[str, int]
    rows_per_step: int
    first_row: int = 0


@dataclass(frozen=True)
class Cycle:
    """The order of sources in a cycle.

    Attributes:
        counts: number of rows of each source, (sources,).
        order: source of each row, (length,).
        ranks: number of rows of the same source before each row, (length,).
    """

    counts: NDArray[np.int64]
    order: NDArray[np.int64]
    ranks: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.order)

    def rows_before(self, number: int) -> NDArray[np.int64]:
        """Return how many of the first rows of endless cycles each source has, (sources,)."""
        cycles, place = divmod(number, len(self))
        first_rows = np.bincount(self.order[:place], minlength=len(self.counts))
        return cycles * self.counts + first_rows


@lru_cache(maxsize=16)
def make_cycle(counts: tuple[int, ...], seed: int) -> Cycle:
    """Return the cycle with some rows of each source; the seed decides between equal sources."""
    permutation = KeyedPermutation(len(counts), seed, "sources")
    sources = [permutation[number] for number in range(len(counts))]
    places = even_order([counts[source] for source in sources])
    order = np.array(sources, dtype=np.int64)[places]
    ranks = np.empty_like(order)
    for source, count in enumerate(counts):
        ranks[order == source] = np.arange(count)
    return Cycle(np.array(counts, dtype=np.int64), order, ranks)


def even_order(counts: Sequence[int]) -> NDArray[np.int64]:
    """Return an order in which each number has its share of every beginning, up to less than 1.

    Tijdeman 1980, "The chairman assignment problem" (Discrete Mathematics 32, 323-330): of the
    numbers that may come next without coming too early, the one with the earliest deadline does.

    Args:
        counts: how often each number occurs.
    """
    length = sum(counts)
    order = np.zeros(length, dtype=np.int64)
    used = np.flatnonzero(counts)
    if len(used) == 1:
        order[:] = used[0]
        return order
    sizes = np.array(counts, dtype=np.int64)[used]
    # Differences from the exact shares are multiples of 1 / (length * slack).
    slack = 2 * len(used) - 2
    debts = np.zeros(len(used), dtype=np.int64)
    for place in range(length):
        debts += sizes
        deadlines = (length * (slack - 1) - debts * slack) / sizes
        deadlines[debts * slack < length] = math.inf
        number = int(deadlines.argmin())
        order[place] = used[number]
        debts[number] -= length
    return order


class MixtureOrder(RowOrder):
    """Endless sequence of row indices into several sources that follow one another in a dataset.

    Args:
        kind: kind of the orders of a source's rows.
        sizes: source -> number of its rows, or ``STREAM_ROWS``.
        stages: position of the first row of each stage, from 0 and ascending, and the number of
            rows of each source in a cycle.
        seed: seed of the run.
        streams: lanes of the sources that are streams; ``None`` if there are none.
    """

    def __init__(
        self,
        kind: DataOrder,
        sizes: Mapping[str, int],
        stages: Sequence[tuple[int, Mapping[str, int]]],
        seed: int,
        streams: StreamSteps | None = None,
    ) -> None:
        self.names = list(sizes)
        self._offsets = np.cumsum([0, *sizes.values()])
        self._first_rows = [first_row for first_row, _ in stages]
        self._cycles: list[Cycle] = []
        # Rows of each source before each stage.
        self._rows_before: list[NDArray[np.int64]] = []
        rows = np.zeros(len(sizes), dtype=np.int64)
        for number, (first_row, counts) in enumerate(stages):
            if number:
                stage_length = first_row - self._first_rows[number - 1]
                rows = rows + self._cycles[-1].rows_before(stage_length)
            self._rows_before.append(rows)
            row_counts = tuple(counts.get(name, 0) for name in self.names)
            self._cycles.append(make_cycle(row_counts, seed))
        self._orders: list[RowOrder] = []
        for name, size in sizes.items():
            if streams is not None and name in streams.lanes:
                self._orders.append(self._stream_order(name, streams))
            else:
                self._orders.append(EpochOrder(kind, size, seed, name))

    def _stream_order(self, name: str, streams: StreamSteps) -> LaneOrder:
        """Return the order of the rows of a stream, whose number in a step may differ by stage."""
        source = self.names.index(name)
        steps = []
        for first_row in sorted({streams.first_row, *self._first_rows}):
            if first_row < streams.first_row:
                continue
            cycle = self._cycles[self._stage(first_row)]
            # As many rows as some cycles have the same number of each source wherever they begin.
            cycles, remainder = divmod(streams.rows_per_step, len(cycle))
            count = None if remainder else cycles * int(cycle.counts[source])
            steps.append(StepRows(self.rows_before(first_row)[name], count or None))
        return LaneOrder(streams.lanes[name], steps)

    def _stage(self, number: int) -> int:
        """Return the number of the stage of a position."""
        return bisect_right(self._first_rows, number) - 1

    def source_row(self, number: int) -> tuple[int, int]:
        """Return the number of the source at a position, and how many of its rows came before."""
        stage = self._stage(number)
        cycle = self._cycles[stage]
        cycles, place = divmod(number - self._first_rows[stage], len(cycle))
        source = int(cycle.order[place])
        rows = self._rows_before[stage][source] + cycles * cycle.counts[source]
        return source, int(rows + cycle.ranks[place])

    @override
    def __getitem__(self, number: int) -> int:
        source, position = self.source_row(number)
        return int(self._offsets[source]) + self._orders[source][position]

    def rows_before(self, number: int) -> dict[str, int]:
        """Return how many rows each source has before a position."""
        stage = self._stage(number)
        rows = self._rows_before[stage]
        rows = rows + self._cycles[stage].rows_before(number - self._first_rows[stage])
        return dict(zip(self.names, rows.tolist(), strict=True))
