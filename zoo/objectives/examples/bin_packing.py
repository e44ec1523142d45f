"""Packing of items of different sizes into rows of one length."""

from typing import Any

import numpy as np
from numpy.typing import NDArray


def best_fit_decreasing(sizes: NDArray[np.integer[Any]], length: int) -> NDArray[np.int32]:
    """Assign items to rows: the largest first, each to the row with the least sufficient room.

    Best-fit decreasing (Johnson 1974, "Fast algorithms for bin packing").

    Args:
        sizes: sizes of the items, (items,), from 1 to ``length``.
        length: size of a row.

    Returns:
        The row of each item, (items,), int32.
    """
    # Items of one size are assigned at once: the fullest row that takes one of them remains the
    # best for the following ones until it has no room for another.
    row_numbers = np.empty(len(sizes), dtype=np.int32)
    order = np.argsort((length - sizes).astype(sizes.dtype), kind="stable")
    counts = np.bincount(sizes, minlength=1)
    # Room -> stack of rows.
    rows_by_room: list[list[NDArray[np.int32]]] = [[] for _ in range(length)]
    item = 0
    row_count = 0
    for size in np.flatnonzero(counts)[::-1].tolist():
        last = item + int(counts[size])
        room = size
        while item < last:
            while room < length and not rows_by_room[room]:
                room += 1
            items_per_row = room // size
            row_limit = -(-(last - item) // items_per_row)
            if room < length:
                rows = _pop(rows_by_room[room], row_limit)
            else:
                rows = np.arange(row_count, row_count + row_limit, dtype=np.int32)
                row_count += row_limit
            placed_items = min(last - item, items_per_row * len(rows))
            placed_rows = np.repeat(rows, items_per_row)[:placed_items]
            row_numbers[order[item : item + placed_items]] = placed_rows
            item += placed_items
            full_rows, remaining_items = divmod(placed_items, items_per_row)
            rows_by_room[room - items_per_row * size].append(rows[:full_rows])
            if remaining_items:
                rows_by_room[room - remaining_items * size].append(rows[full_rows:])
    return row_numbers


def _pop(stack: list[NDArray[np.int32]], count: int) -> NDArray[np.int32]:
    """Take up to ``count`` rows off a stack of arrays, the last row first."""
    pieces = []
    while count and stack:
        rows = stack.pop()
        if len(rows) > count:
            stack.append(rows[:-count])
            rows = rows[-count:]
        pieces.append(rows[::-1])
        count -= len(rows)
    return np.concatenate(pieces)
