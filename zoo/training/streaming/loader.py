"""Batches of a stream, and its state at each step."""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from zoo.data.order import RowOrder
from zoo.objectives.base import Batch, ExampleSource, TrainingObjective
from zoo.overrides import override
from zoo.training.dataloader import BatchLoader
from zoo.training.distributed.context import DistContext
from zoo.training.streaming.rows import UNREAD, StreamRows

# Name of the table of lanes in a checkpoint; of a source of several, with a dot and its name.
LANES = "lanes"
STEPS_KEPT = 3  # Steps whose states are kept: batches are prepared one step ahead.


class StreamLoader(BatchLoader):
    """Loads the micro-batches of a run on a stream, or on several sources with a stream.

    Args:
        objective: objective of the run.
        dataset: the rows that are read.
        streams: name of the table of lanes in a checkpoint -> a stream of the dataset.
        make_order: returns the order of the rows for steps that begin with some row.
        **options: further arguments of ``BatchLoader``.
    """

    def __init__(
        self,
        objective: TrainingObjective,
        dataset: ExampleSource,
        *,
        streams: Mapping[str, StreamRows],
        make_order: Callable[[int], RowOrder],
        **options: Any,
    ) -> None:
        super().__init__(objective, dataset, order=make_order(0), **options)
        self.streams = streams
        self._make_order = make_order
        # Step -> the tables of the lanes that this process has read.
        self._states: dict[int, dict[str, Tensor]] = {}
        self._loaded: dict[str, Tensor] = {}
        for name, stream in streams.items():
            self._loaded[name] = stream.unread_table()

    @override
    def start_at(self, step: int, rows: int) -> None:
        super().start_at(step, rows)
        if step >= self.first_step:
            self._order = self._make_order(rows)

    @override
    def make_batches(self, step: int) -> list[Batch]:
        batches = super().make_batches(step)
        if self.warmup_loader is None or step >= self.first_step:
            tables = {name: stream.state_table() for name, stream in self.streams.items()}
            self._states[step + 1] = tables
            self._states.pop(step + 1 - STEPS_KEPT, None)
        return batches

    @override
    def state_dict(self, step: int, dist: DistContext) -> dict[str, Tensor]:
        if self.warmup_loader is not None and step < self.first_step:
            return self.warmup_loader.state_dict(step, dist)
        states = {}
        for name, stream in self.streams.items():
            states[name] = self._states.get(step, {}).get(name, stream.unread_table())
        merged_tables = {}
        for name, tables in dist.gather_rows(states).items():
            loaded = self._loaded[name]
            merged_tables[name] = merge_tables(loaded, tables.view(-1, *loaded.shape))
        return merged_tables

    @override
    def load_state_dict(self, step: int, tensors: Mapping[str, Tensor]) -> None:
        if self.warmup_loader is not None and step < self.first_step:
            self.warmup_loader.load_state_dict(step, tensors)
            return
        for name, stream in self.streams.items():
            # A source that a run adds to those of the run that it continues has no table yet.
            if name in tensors:
                self._loaded[name] = tensors[name]
                stream.load_state_table(tensors[name])

    @override
    def close(self) -> None:
        super().close()
        for stream in self.streams.values():
            stream.blocks.close()
        if self.warmup_loader is not None:
            self.warmup_loader.close()


def merge_tables(loaded: Tensor, tables: Tensor) -> Tensor:
    """Return the states of all lanes.

    Args:
        loaded: the states that all processes began with, (lanes, columns).
        tables: states of the lanes that each process has read, (processes, lanes, columns).
    """
    merged = loaded.clone()
    # Several processes may read the same lane. Each of their states goes on with the same rows.
    for table in tables.flip(0):
        is_read = table[:, :1] != UNREAD
        merged = torch.where(is_read, table, merged)
    return merged
