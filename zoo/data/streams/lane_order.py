"""The order in which the steps of a run read the rows of a stream's lanes."""

from bisect import bisect_right
from collections.abc import Sequence
from typing import NamedTuple

from zoo.data.order import RowOrder
from zoo.overrides import override


class StepRows(NamedTuple):
    """Rows of a stream that each step reads, from a step on."""

    first_row: int  # Number of rows that were read before that step.
    rows: int | None  # Rows of a step; ``None`` if steps have different numbers of them.


class LaneOrder(RowOrder):
    """Order of the rows of a stream, in which each place of a step reads always the same lane.

    Successive places share a lane, so that a process that has a part of the places reads a part of
    the lanes. This needs steps in which each lane has equally many rows, and that begin where all
    lanes have read equally many; all other steps read the rows in the order of their indices.

    Args:
        lanes: number of lanes.
        steps: the rows of steps, by ascending ``first_row``.
    """

    def __init__(self, lanes: int, steps: Sequence[StepRows]) -> None:
        self.lanes = lanes
        self.steps = list(steps)
        self._first_rows = [step.first_row for step in steps]

    @override
    def __getitem__(self, number: int) -> int:
        part = bisect_right(self._first_rows, number) - 1
        if part < 0:
            return number
        first_row, rows = self.steps[part]
        if rows is None or rows % self.lanes or first_row % self.lanes:
            return number
        step, place = divmod(number - first_row, rows)
        rows_per_lane = rows // self.lanes
        lane, row = divmod(place, rows_per_lane)
        row += first_row // self.lanes + step * rows_per_lane
        return row * self.lanes + lane
