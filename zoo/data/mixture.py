"""Mixtures of several sources: how often each is read, and which row of which source comes when.

The source of a row is a function of its position in a run, like everything else of a run's order
(``zoo.data.order``). Sources are read in *cycles*, in each of which every source has an exact
number of rows. The rows of a source are evenly spread over a cycle: before any row, each source has
had its share of the rows up to one row. A source's own rows are shuffled, and shuffled anew in each
of its epochs. How many rows of a source come before a position follows from the number of the
cycle and the place in it, so that a run begins anywhere without reading what comes before.
"""

import math
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from zoo.data.order import DataOrder, EpochOrder, KeyedPermutation, RowOrder
from zoo.errors import UsageError
from zoo.io.json import JsonStruct
from zoo.overrides import override

# Rows of a cycle at most. Shares that no shorter cycle has are rounded to multiples of 1 / this.
MAX_CYCLE = 10_000
SUM_TOLERANCE = 1e-6  # Largest difference between the sum of weights and 1.
HINT_DIGITS = 4  # Digits of the weights that an error proposes.


class MixtureStage(JsonStruct, kw_only=True):
    """Weights of a mixture from a step on, as a run's manifest records them."""

    step: int  # First step with these weights.
    # Rows that were read before that step, of the length that the rows of that step have.
    rows: int
    counts: dict[str, int]  # Source -> number of its rows in a cycle.

    @property
    def shares(self) -> dict[str, float]:
        """Share of the rows of each source."""
        total = sum(self.counts.values())
        return {name: count / total for name, count in self.counts.items()}


def require_shares(weights: Mapping[str, float], subject: str) -> None:
    """Check that weights are shares: none is negative, and they add up to 1.

    Args:
        weights: source -> weight.
        subject: what has the weights, for messages.
    """
    for name, weight in weights.items():
        if not 0 <= weight < math.inf:
            raise UsageError(
                f"{subject}: the weight of {name} is {weight}", "give a number from 0 to 1"
            )
    total = sum(weights.values())
    if abs(total - 1) <= SUM_TOLERANCE:
        return
    what = f"{subject}: the weights of {', '.join(weights)} add up to {total:.6g}, and not to 1"
    if not total:
        raise UsageError(what, "give one of them a weight")
    unit = 10**HINT_DIGITS
    proposed = round_to_total({name: weight / total for name, weight in weights.items()}, unit)
    texts = [f"{name}={count / unit:g}" for name, count in proposed.items()]
    raise UsageError(what, f"in these proportions, they are {', '.join(texts)}")


def shares_by_epochs(sizes: Mapping[str, int], epochs: Mapping[str, float]) -> dict[str, float]:
    """Return the share of each source if an epoch of the run has some passes over it.

    Args:
        sizes: source -> number of its tokens.
        epochs: source -> number of passes over it.
    """
    return _normalized({name: size * epochs[name] for name, size in sizes.items()})


def shares_by_temperature(
    sizes: Mapping[str, int], temperature: float, limit: int | None = None
) -> dict[str, float]:
    """Return shares that grow with the sizes of the sources.

    Temperature-scaled mixing (Raffel et al. 2020, arXiv:1910.10683, section 3.5.2): shares are
    proportional to ``min(size, limit) ** (1 / temperature)``. With a temperature of 1, this is
    examples-proportional mixing; the exponent of mT5 (Xue et al. 2021, arXiv:2010.11934, section
    3.2) is ``1 / temperature``.

    Args:
        sizes: source -> number of its tokens.
        temperature: 1 for shares in proportion to the sizes; higher for more equal ones.
        limit: largest size that counts; ``None`` for no limit.
    """
    powers = {}
    for name, size in sizes.items():
        counted_size = size if limit is None else min(size, limit)
        powers[name] = counted_size ** (1 / temperature)
    return _normalized(powers)


def _normalized(values: Mapping[str, float]) -> dict[str, float]:
    total = sum(values.values())
    return {name: value / total for name, value in values.items()}


def cycle_counts(shares: Mapping[str, float], subject: str) -> dict[str, int]:
    """Return the number of rows of each source in a cycle.

    It is the shortest cycle that has exactly these shares, as decimal numbers, or else one of
    ``MAX_CYCLE`` rows.

    Args:
        shares: source -> share of the rows, which add up to 1.
        subject: what has the shares, for messages.
    """
    length = 1
    fractions = {name: Fraction(repr(float(share))) for name, share in shares.items()}
    for fraction in fractions.values():
        length = math.lcm(length, fraction.denominator)
    if length <= MAX_CYCLE and sum(fractions.values()) == 1:
        return {name: int(fraction * length) for name, fraction in fractions.items()}
    counts = round_to_total(shares, MAX_CYCLE)
    for name, share in shares.items():
        if share and not counts[name]:
            raise UsageError(
                f"{subject}: the share of {name} is {share:.2g}, less than a row of {MAX_CYCLE:,}",
                f"give it 0, or {1 / MAX_CYCLE:g} or more",
            )
    return counts


def round_to_total(shares: Mapping[str, float], total: int) -> dict[str, int]:
    """Return whole numbers in proportion to shares that add up to a total: largest remainders."""
    exact = {name: share * total for name, share in shares.items()}
    counts = {name: math.floor(value) for name, value in exact.items()}
    remainders = sorted(counts, key=lambda name: counts[name] - exact[name])
    for name in remainders[: total - sum(counts.values())]:
        counts[name] += 1
    return counts


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
        sizes: source -> number of its rows.
        stages: position of the first row of each stage, from 0 and ascending, and the number of
            rows of each source in a cycle.
        seed: seed of the run.
    """

    def __init__(
        self,
        kind: DataOrder,
        sizes: Mapping[str, int],
        stages: Sequence[tuple[int, Mapping[str, int]]],
        seed: int,
    ) -> None:
        self.names = list(sizes)
        self._offsets = np.cumsum([0, *sizes.values()])
        self._orders = [EpochOrder(kind, size, seed, name) for name, size in sizes.items()]
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

    def source_row(self, number: int) -> tuple[int, int]:
        """Return the number of the source at a position, and how many of its rows came before."""
        stage = bisect_right(self._first_rows, number) - 1
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
        stage = bisect_right(self._first_rows, number) - 1
        rows = self._rows_before[stage]
        rows = rows + self._cycles[stage].rows_before(number - self._first_rows[stage])
        return dict(zip(self.names, rows.tolist(), strict=True))
