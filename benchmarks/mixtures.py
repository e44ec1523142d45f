"""Rows of a mixture of three sources, next to ``datasets.interleave_datasets``.

    python -m benchmarks.mixtures [--rows 200000] [--read 20000] [--rounds 3]

The sources have 60 %, 30 % and 10 % of ``--rows`` rows of 128 tokens, and weights of 0.5, 0.3 and
0.2. All sides read rows as NumPy arrays from memory-mapped files. Rates are of the first ``--read``
rows. A resume begins at 90 % of ``--rows``: it is the time from opened sources to the first row.

* ``zoo``: ``MixtureOrder``, whose position is a function of the row's number; it has no state.
* ``map``: ``interleave_datasets`` of map-style datasets, which draws the sources of all rows when
  it is made; rows are looked up by index.
* ``iterable``: ``interleave_datasets`` of iterable datasets, resumed by ``load_state_dict``.

The last column has the largest difference of a source's share from its weight, after any number of
rows from 1,000 on. ``datasets`` draws each source at random.
"""

import argparse
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from benchmarks._common import Timing, alternate, machine, table, versions
from zoo.data.mixture import MixtureOrder
from zoo.data.shares import cycle_counts

LENGTH = 128
WEIGHTS = {"books": 0.5, "web": 0.3, "code": 0.2}
SIZES = (0.6, 0.3, 0.1)
POSITION = 0.9  # of the rows, where a run is resumed
Rows = list[NDArray[np.int64]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--read", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    sizes = [int(part * arguments.rows) for part in SIZES]
    with tempfile.TemporaryDirectory() as folder:
        sources = write_sources(Path(folder), sizes)
        sides: dict[str, Side] = {
            "zoo": ZooSide(sources),
            "map": MapSide(Path(folder), sources),
            "iterable": IterableSide(Path(folder), sources),
        }
        position = int(POSITION * arguments.rows)
        readers: dict[str, Callable[[], object]] = {}
        resumes: dict[str, Callable[[], object]] = {}
        for name, side in sides.items():
            side.prepare(position)
            readers[name] = partial(side.read, arguments.read)
            resumes[name] = partial(side.resume, position)
        rates = alternate(readers, rounds=arguments.rounds)
        resume_times = alternate(resumes, rounds=arguments.rounds)
        print(machine(1))
        print(versions("numpy", "datasets"), "\n")
        lines = []
        for name, side in sides.items():
            rate = arguments.read / _median(rates[name])
            deviation = largest_deviation(side.sources_of(arguments.read))
            resume_ms = 1e3 * _median(resume_times[name])
            lines.append((name, f"{rate:,.0f}", f"{resume_ms:,.2f}", f"{deviation:.3%}"))
        header = ("side", "rows/s", "resume at 90 %, ms", "largest deviation")
        print(table(header, lines))


class Side(Protocol):
    """A library that mixes the sources."""

    def prepare(self, position: int) -> None:
        """Save the state at a position, if there is one."""

    def read(self, count: int) -> int:
        """Read the first rows, and return the number of their tokens."""

    def resume(self, position: int) -> object:
        """Return the row at a position, from opened sources."""

    def sources_of(self, count: int) -> NDArray[np.int64]:
        """Return the numbers of the sources of the first rows, (count,)."""


class ZooSide(Side):
    """Rows by the orders of ``zoo``; each source's own rows are shuffled too."""

    def __init__(self, sources: Rows) -> None:
        self.sources = sources
        self.starts = np.cumsum([0, *map(len, sources)])

    def prepare(self, position: int) -> None:
        """There is no state to save."""

    def order(self) -> MixtureOrder:
        sizes = dict(zip(WEIGHTS, map(len, self.sources), strict=True))
        counts = cycle_counts(WEIGHTS, "the benchmark")
        return MixtureOrder("keyed", sizes, [(0, counts)], seed=0)

    def row(self, order: MixtureOrder, number: int) -> NDArray[np.int64]:
        source, _ = order.source_row(number)
        index = order[number] - self.starts[source]
        return np.array(self.sources[source][index])

    def read(self, count: int) -> int:
        order = self.order()
        return sum(len(self.row(order, number)) for number in range(count))

    def resume(self, position: int) -> NDArray[np.int64]:
        return self.row(self.order(), position)

    def sources_of(self, count: int) -> NDArray[np.int64]:
        order = self.order()
        return np.array([order.source_row(number)[0] for number in range(count)])


class MapSide(Side):
    """Map-style datasets of ``datasets``."""

    def __init__(self, folder: Path, sources: Rows) -> None:
        self.datasets = open_datasets(folder, sources)

    def prepare(self, position: int) -> None:
        """There is no state to save."""

    def mixed(self) -> Any:
        from datasets import interleave_datasets

        return interleave_datasets(
            self.datasets, list(WEIGHTS.values()), seed=0, stopping_strategy="all_exhausted"
        )

    def read(self, count: int) -> int:
        mixed = self.mixed()
        return sum(len(mixed[number]["ids"]) for number in range(count))

    def resume(self, position: int) -> Any:
        return self.mixed()[position]["ids"]

    def sources_of(self, count: int) -> NDArray[np.int64]:
        mixed = self.mixed()
        return np.array([mixed[number]["source"] for number in range(count)])


class IterableSide(MapSide):
    """Iterable datasets of ``datasets``, which have a state."""

    state: Any = None

    def mixed(self) -> Any:
        from datasets import interleave_datasets

        iterable = [dataset.to_iterable_dataset() for dataset in self.datasets]
        return interleave_datasets(
            iterable, list(WEIGHTS.values()), seed=0, stopping_strategy="all_exhausted"
        )

    def prepare(self, position: int) -> None:
        mixed = self.mixed()
        for _ in islice(mixed, position):
            pass
        self.state = mixed.state_dict()

    def rows(self) -> Iterator[Any]:
        return iter(self.mixed())

    def read(self, count: int) -> int:
        return sum(len(row["ids"]) for row in islice(self.rows(), count))

    def resume(self, position: int) -> Any:
        mixed = self.mixed()
        mixed.load_state_dict(self.state)
        return next(iter(mixed))["ids"]

    def sources_of(self, count: int) -> NDArray[np.int64]:
        return np.array([row["source"] for row in islice(self.rows(), count)])


def write_sources(folder: Path, sizes: list[int]) -> Rows:
    """Write the token ids of each source, and map them."""
    rng = np.random.default_rng(0)
    sources = []
    for number, size in enumerate(sizes):
        path = folder / f"{number}.npy"
        np.save(path, rng.integers(0, 30_000, (size, LENGTH), dtype=np.int64))
        sources.append(np.load(path, mmap_mode="r"))
    return sources


def open_datasets(folder: Path, sources: Rows) -> list[Any]:
    """Return the sources as datasets in files of Arrow, whose rows are NumPy arrays."""
    from datasets import Dataset, load_from_disk

    opened = []
    for number, source in enumerate(sources):
        path = folder / f"arrow-{number}"
        columns = {"ids": list(source), "source": [number] * len(source)}
        Dataset.from_dict(columns).save_to_disk(path)
        opened.append(load_from_disk(path).with_format("numpy"))
    return opened


def largest_deviation(sources: NDArray[np.int64]) -> float:
    """Return the largest difference of a share from its weight, from 1,000 rows on."""
    counts = np.arange(1, len(sources) + 1)
    largest = 0.0
    for number, weight in enumerate(WEIGHTS.values()):
        shares = np.cumsum(sources == number) / counts
        largest = max(largest, float(np.abs(shares - weight)[999:].max()))
    return largest


def _median(timing: Timing) -> float:
    return float(np.median(timing.seconds))


if __name__ == "__main__":
    main()
