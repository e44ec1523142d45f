"""Batches of a run: a pure function of the step, prepared one step ahead in a thread."""

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import TypeAlias, overload

import numpy as np
import torch
from numpy.typing import NDArray

from zoo.data.order import DEFAULT_ORDER, EpochOrder, RowOrder
from zoo.data.rng import generator
from zoo.objectives.base import (
    Batch,
    Example,
    ExampleDataset,
    ExampleSource,
    TrainingObjective,
)
from zoo.training.devices import DeviceTransfer, PendingBatches
from zoo.training.distributed.context import DistContext
from zoo.training.mixed_dataset import MixedDataset, RowSources, with_sources

Collate: TypeAlias = Callable[[Sequence[Example]], Batch]
CollateWrapper: TypeAlias = Callable[[Collate, Sequence[Example]], Batch]


class BatchLoader:
    """Loads the micro-batches of one process: the examples of a step, and their batches."""

    def __init__(
        self,
        objective: TrainingObjective,
        dataset: ExampleSource,
        *,
        seed: int,
        global_batch_size: int,  # rows per step, over all ranks
        micro_batch_size: int,  # rows per forward pass
        rank: int = 0,
        world_size: int = 1,
        purpose: str = "train",  # key of the random numbers: ``train`` or ``validation``
        first_step: int = 0,  # first step that this loader serves
        warmup_loader: "BatchLoader | None" = None,  # loader of earlier steps, with shorter rows
        collate: Callable[[Sequence[Example]], Batch] | None = None,
        collate_wrapper: CollateWrapper | None = None,  # see ``RunSetup``
        device: torch.device | None = None,  # of the batches that ``batches`` returns
        order: RowOrder | None = None,  # by default each epoch is shuffled
        # tokens of each row, (rows,): a step's rows are sorted by them, to pad micro-batches less
        lengths: NDArray[np.int64] | None = None,
        # all ranks share each micro-batch, instead of the step's rows
        split_micro_batches: bool = False,
        sources: RowSources | None = None,  # Sources of the rows; by default the dataset's, if any.
    ) -> None:
        self.collate = collate or objective.collate
        self._collate_sample = objective.collate
        if collate_wrapper is not None:
            self.collate = partial(collate_wrapper, self.collate)
            self._collate_sample = partial(collate_wrapper, objective.collate)
        self._transfer = DeviceTransfer(device or torch.device("cpu"))
        self.first_step = first_step
        self.warmup_loader = warmup_loader
        self.objective = objective
        self.dataset = dataset
        self.seed = seed
        self.purpose = purpose
        self.global_batch_size = global_batch_size
        rows = range(global_batch_size)
        if split_micro_batches:
            self.micro_batches = []
            for micro in split_range(rows, micro_batch_size):
                self.micro_batches.append(share_of(micro, rank, world_size))
        else:
            self.micro_batches = split_range(share_of(rows, rank, world_size), micro_batch_size)
        if order is None:
            assert isinstance(dataset, ExampleDataset), "a stream has an order of its own"
            order = EpochOrder(DEFAULT_ORDER, len(dataset), seed)
        self._order: RowOrder = order
        if sources is None and isinstance(dataset, MixedDataset):
            sources = dataset
        self._sources = sources
        self._lengths = lengths
        self._from_step = first_step
        self._rows_before = 0
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="feed")
        self._next: tuple[int, Future[PendingBatches]] | None = None

    def start_at(self, step: int, rows: int) -> None:
        """Begin at a step with the row after those that a run with another batch size has read."""
        if step >= self.first_step:
            self._from_step = step
            self._rows_before = rows
        elif self.warmup_loader is not None:  # Without a loader, the steps of the warm-up are over.
            self.warmup_loader.start_at(step, rows)

    def batches(self, step: int) -> list[Batch]:
        """Return the micro-batches of a step, and start to prepare the next step's.

        They are on the device, to which they were copied during the previous step.
        """
        if self._next is not None and self._next[0] == step:
            pending = self._next[1]
        else:
            pending = self._pool.submit(self._prepare, step)
        batches = self._transfer.finish(pending.result())
        self._next = (step + 1, self._pool.submit(self._prepare, step + 1))
        return batches

    def _prepare(self, step: int) -> PendingBatches:
        return self._transfer.start(self.make_batches(step))

    def make_batches(self, step: int) -> list[Batch]:
        """Make this process's micro-batches of a step."""
        if self.warmup_loader is not None and step < self.first_step:
            return self.warmup_loader.make_batches(step)
        return [self.make_batch(step, micro) for micro in self._sorted(step)]

    def make_batch(self, step: int, micro: Sequence[int]) -> Batch:
        """Make a batch of some rows of a step."""
        examples = list(self._rows(step, micro))
        batch = self.collate(examples)
        if self._sources is None:
            return batch
        indices = [self.index(step, place) for place in micro]
        return with_sources(batch, examples, indices, self._sources)

    def lazy_batches(self, step: int) -> "LazyBatches":
        """Return this process's micro-batches of a step, each made when it is read.

        The rows of each have one source, if they have sources.
        """
        return LazyBatches(self, step, self._split_by_source(step, self._sorted(step)))

    def _split_by_source(
        self, step: int, micro_batches: Sequence[Sequence[int]]
    ) -> Sequence[Sequence[int]]:
        """Return micro-batches that are split where the source of their rows changes."""
        sources = self._sources
        if sources is None:
            return micro_batches

        def source_of(place: int) -> int:
            return sources.source_number(self.index(step, place))

        parts = []
        for micro in micro_batches:
            for _, places in itertools.groupby(micro, source_of):
                parts.append(list(places))
        return parts

    def sample_batch(self, step: int) -> Batch:
        """Make a batch of the first row of a step."""
        if self.warmup_loader is not None and step < self.first_step:
            return self.warmup_loader.sample_batch(step)
        return self._collate_sample(list(self._rows(step, self._sorted(step)[0][:1])))

    def micro_batch_count(self, step: int) -> int:
        """Return the number of micro-batches of a step, of this process."""
        if self.warmup_loader is not None and step < self.first_step:
            return self.warmup_loader.micro_batch_count(step)
        return len(self.micro_batches)

    def middle_micro_batch(self, step: int) -> Batch:
        """Make only one micro-batch of a step, with rows neither the longest nor the shortest."""
        if self.warmup_loader is not None and step < self.first_step:
            return self.warmup_loader.middle_micro_batch(step)
        by_length = self._sorted(step)
        return self.make_batch(step, by_length[len(by_length) // 2])

    def _sorted(self, step: int) -> Sequence[Sequence[int]]:
        """Return the rows of each micro-batch of a step, the longest first."""
        lengths = self._lengths
        if lengths is None:
            return self.micro_batches
        # Rows are drawn regardless of their lengths: the gradient of a step with only short texts
        # differs from the gradient of a step with all texts.
        rows = [place for micro in self.micro_batches for place in micro]
        longest_first = iter(sorted(rows, key=lambda place: -lengths[self.index(step, place)]))
        return [list(itertools.islice(longest_first, len(micro))) for micro in self.micro_batches]

    def _rows(self, step: int, micro: Sequence[int]) -> Iterator:  # type: ignore[type-arg]
        # The generator's key is the row of the global batch, so that ranks and micro-batches do not
        # matter.
        for place in micro:
            rng = generator(self.seed, self.purpose, step, place)
            yield self.dataset.example(self.index(step, place), rng)

    def index(self, step: int, place: int) -> int:
        """Return the index into the dataset of one of the rows of a step."""
        if not self.objective.stateful:
            rows = self._rows_before + (step - self._from_step) * self.global_batch_size
            return self._order[rows + place]
        # Each row of a stateful batch reads a contiguous part of the corpus.
        assert isinstance(self.dataset, ExampleDataset), "a stream has no stateful objective"
        rows_per_place = len(self.dataset) // self.global_batch_size
        return place * rows_per_place + step % rows_per_place

    def state_dict(self, step: int, dist: DistContext) -> dict[str, torch.Tensor]:
        """Return the place in the data where a step begins, in tensors; all processes call it.

        There are none where the place is a function of the step, as in a dataset with a length.
        """
        return {}

    def load_state_dict(self, step: int, tensors: Mapping[str, torch.Tensor]) -> None:
        """Go on at the place that ``state_dict`` returned for a step."""

    def close(self) -> None:
        """Stop the thread that prepares batches."""
        self._pool.shutdown(wait=True, cancel_futures=True)


class LazyBatches(Sequence[Batch]):
    """Micro-batches of a step, each made when it is read, so that one is in memory."""

    def __init__(
        self, loader: BatchLoader, step: int, micro_batches: Sequence[Sequence[int]]
    ) -> None:
        self._loader = loader
        self._step = step
        self._micro_batches = micro_batches

    @property
    def rows(self) -> list[int]:
        """Index into the dataset of each row, in the order of the micro-batches."""
        places = (place for micro in self._micro_batches for place in micro)
        return [self._loader.index(self._step, place) for place in places]

    def __len__(self) -> int:
        return len(self._micro_batches)

    @overload
    def __getitem__(self, index: int) -> Batch: ...

    @overload
    def __getitem__(self, index: slice) -> "LazyBatches": ...

    def __getitem__(self, index: int | slice) -> "Batch | LazyBatches":
        """Make a micro-batch, or return some of them."""
        if isinstance(index, slice):
            return LazyBatches(self._loader, self._step, self._micro_batches[index])
        return self._loader.make_batch(self._step, self._micro_batches[index])


def share_of(rows: range, rank: int, world_size: int) -> range:
    """Return the rows of one of several ranks; the last ones have fewer if they do not divide."""
    share = -(-len(rows) // world_size)
    return rows[rank * share : (rank + 1) * share]


def split_range(rows: range, size: int) -> list[range]:
    """Return successive parts of a range; the last may be smaller."""
    return [rows[start : start + size] for start in range(0, len(rows), size)]
