"""The rows of several sources as one dataset, and the parts of a batch that are from each."""

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from zoo.data.mixture import STREAM_ROWS
from zoo.objectives.base import (
    SOURCE_IDS,
    Batch,
    Example,
    ExampleDataset,
    ExampleSource,
    SourceCounts,
)
from zoo.overrides import override


class RowSources(Protocol):
    """The source of each row of a dataset."""

    def source_names(self) -> Sequence[str]:
        """Return the names of the sources."""

    def source_number(self, index: int) -> int:
        """Return the number of the source of a row."""


@dataclass(frozen=True)
class TableSources(RowSources):
    """The sources of the rows of tables.

    Attributes:
        names: names of the sources.
        numbers: number of the source of each row, (rows,).
    """

    names: Sequence[str]
    numbers: NDArray[np.int64]

    @override
    def source_names(self) -> Sequence[str]:
        return self.names

    @override
    def source_number(self, index: int) -> int:
        return int(self.numbers[index])


class MixedDataset(ExampleDataset, RowSources):
    """The rows of several sources, one source after another.

    Args:
        datasets: source -> its rows, which may be a stream.
    """

    def __init__(self, datasets: Mapping[str, ExampleSource]) -> None:
        self.datasets = dict(datasets)
        self._datasets = list(datasets.values())
        # First row of each source, and the number of rows.
        self._starts: list[int] = np.cumsum([0, *self.sizes.values()]).tolist()

    @property
    def sizes(self) -> dict[str, int]:
        """Number of rows of each source; of a stream, the number of its indices."""
        sizes = {}
        for name, dataset in self.datasets.items():
            sizes[name] = len(dataset) if isinstance(dataset, ExampleDataset) else STREAM_ROWS
        return sizes

    def __len__(self) -> int:
        return self._starts[-1]

    @override
    def cut_lines(self) -> list[str]:
        lines = []
        for name, dataset in self.datasets.items():
            if isinstance(dataset, ExampleDataset):
                lines += [f"{name}: {line}" for line in dataset.cut_lines()]
        return lines

    @override
    def source_names(self) -> Sequence[str]:
        return list(self.datasets)

    @override
    def source_number(self, index: int) -> int:
        return bisect_right(self._starts, index) - 1

    @override
    def example(self, index: int, rng: np.random.Generator) -> Example:
        number = self.source_number(index)
        return self._datasets[number].example(index - self._starts[number], rng)


def with_sources(
    batch: Batch, examples: Sequence[Example], indices: Sequence[int], sources: RowSources
) -> Batch:
    """Return a batch with the sources of its rows.

    Args:
        batch: the batch.
        examples: its rows.
        indices: their indices into the dataset.
        sources: the sources of the dataset.
    """
    names = sources.source_names()
    numbers = [sources.source_number(index) for index in indices]
    rows = dict.fromkeys(names, 0)
    counts = {name: dict.fromkeys(batch.counts, 0.0) for name in names}
    for number, example in zip(numbers, examples, strict=True):
        name = names[number]
        rows[name] += 1
        for term, count in example.counts.items():
            counts[name][term] = counts[name].get(term, 0.0) + count
    parts = {name: SourceCounts(rows[name], counts[name]) for name in names}
    tensors = {**batch.tensors, SOURCE_IDS: torch.tensor(numbers)}
    return replace(batch, tensors=tensors, sources=parts)
