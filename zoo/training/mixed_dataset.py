"""The rows of several sources as one dataset, and the parts of a batch that are from each."""

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import torch

from zoo.objectives.base import SOURCE_IDS, Batch, Example, ExampleDataset, SourceCounts
from zoo.overrides import override


class MixedDataset(ExampleDataset):
    """The rows of several sources, one source after another.

    Args:
        datasets: source -> its rows.
    """

    def __init__(self, datasets: Mapping[str, ExampleDataset]) -> None:
        self.datasets = dict(datasets)
        self._datasets = list(datasets.values())
        # First row of each source, and the number of rows.
        self._starts: list[int] = np.cumsum([0, *map(len, self._datasets)]).tolist()

    @property
    def sizes(self) -> dict[str, int]:
        """Number of rows of each source."""
        return {name: len(dataset) for name, dataset in self.datasets.items()}

    def __len__(self) -> int:
        return self._starts[-1]

    def source_number(self, index: int) -> int:
        """Return the number of the source of a row."""
        return bisect_right(self._starts, index) - 1

    @override
    def example(self, index: int, rng: np.random.Generator) -> Example:
        number = self.source_number(index)
        return self._datasets[number].example(index - self._starts[number], rng)

    def with_sources(
        self, batch: Batch, examples: Sequence[Example], indices: Sequence[int]
    ) -> Batch:
        """Return a batch of examples with the sources of its rows; ``indices`` are the rows'."""
        numbers = [self.source_number(index) for index in indices]
        rows = dict.fromkeys(self.datasets, 0)
        counts = {name: dict.fromkeys(batch.counts, 0.0) for name in self.datasets}
        names = list(self.datasets)
        for number, example in zip(numbers, examples, strict=True):
            name = names[number]
            rows[name] += 1
            for term, count in example.counts.items():
                counts[name][term] = counts[name].get(term, 0.0) + count
        sources = {name: SourceCounts(rows[name], counts[name]) for name in names}
        tensors = {**batch.tensors, SOURCE_IDS: torch.tensor(numbers)}
        return replace(batch, tensors=tensors, sources=sources)
