"""Batches of a stream, and its state at each step."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from zoo.data.order import RowOrder
from zoo.objectives.base import Batch, TrainingObjective
from zoo.overrides import override
from zoo.training.dataloader import BatchLoader
from zoo.training.distributed.context import DistContext
from zoo.training.streaming.rows import COLUMNS, UNREAD, StreamRows

LANES = "lanes"  # Name of the table of lanes in a checkpoint.
STEPS_KEPT = 3  # Steps whose states are kept: batches are prepared one step ahead.


class LaneOrder(RowOrder):
    """Order of the rows of a stream, in which each place of a step reads always the same lane.

    Successive places share a lane, so that a process that has a part of the places reads a part of
    the lanes. This needs steps in which each lane has equally many rows, and that begin where all
    lanes have read equally many; all other steps read the rows in the order of their indices.

    Args:
        lanes: number of lanes.
        rows_per_step: number of rows of a step.
        first_row: number of rows that were read before, with other numbers of rows per step.
    """

    def __init__(self, lanes: int, rows_per_step: int, first_row: int = 0) -> None:
        self.lanes = lanes
        self.rows_per_step = rows_per_step
        self.first_row = first_row
        self.is_aligned = rows_per_step % lanes == 0 and first_row % lanes == 0

    @override
    def __getitem__(self, number: int) -> int:
        if not self.is_aligned:
            return number
        step, place = divmod(number - self.first_row, self.rows_per_step)
        rows_per_lane = self.rows_per_step // self.lanes
        lane, row = divmod(place, rows_per_lane)
        row += self.first_row // self.lanes + step * rows_per_lane
        return row * self.lanes + lane


class StreamLoader(BatchLoader):
    """Loads the micro-batches of a run on a stream."""

    def __init__(
        self,
        objective: TrainingObjective,
        rows: StreamRows,
        *,
        global_batch_size: int,
        **options: Any,
    ) -> None:
        self.rows = rows
        lane_count = len(rows.lanes)
        order = LaneOrder(lane_count, global_batch_size)
        super().__init__(
            objective, rows, order=order, global_batch_size=global_batch_size, **options
        )
        self._states: dict[int, Tensor] = {}
        self._loaded = torch.full((lane_count, len(COLUMNS)), UNREAD, dtype=torch.int64)

    @override
    def start_at(self, step: int, rows: int) -> None:
        super().start_at(step, rows)
        if step >= self.first_step:
            self._order = LaneOrder(len(self.rows.lanes), self.global_batch_size, rows)

    @override
    def make_batches(self, step: int) -> list[Batch]:
        batches = super().make_batches(step)
        if self.warmup_loader is None or step >= self.first_step:
            self._states[step + 1] = self.rows.state_table()
            self._states.pop(step + 1 - STEPS_KEPT, None)
        return batches

    @override
    def state_dict(self, step: int, dist: DistContext) -> dict[str, Tensor]:
        if self.warmup_loader is not None and step < self.first_step:
            return self.warmup_loader.state_dict(step, dist)
        unread = torch.full_like(self._loaded, UNREAD)
        gathered = dist.gather_rows({LANES: self._states.get(step, unread)})
        tables = gathered[LANES].view(-1, *self._loaded.shape)
        return {LANES: merge_tables(self._loaded, tables)}

    @override
    def load_state_dict(self, step: int, tensors: Mapping[str, Tensor]) -> None:
        if self.warmup_loader is not None and step < self.first_step:
            self.warmup_loader.load_state_dict(step, tensors)
            return
        self._loaded = tensors[LANES]
        self.rows.load_state_table(self._loaded)

    @override
    def close(self) -> None:
        super().close()
        self.rows.blocks.close()
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
