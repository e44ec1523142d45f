"""Rows that are padded, and rows that are packed by ``zoo.data.packing``."""

from itertools import pairwise

import numpy as np

from tools.figures.drawing import Canvas, Colour
from zoo.data.corpus import Split
from zoo.data.packing import cut_documents

SIZES = (21, 9, 30, 13, 6, 17)  # tokens of the documents
LENGTH = 32  # tokens of a row
COLOURS: tuple[Colour, ...] = ("blue", "green", "amber", "violet", "red", "teal")
CELL = 11
TALL = 24


def draw() -> str:
    """Return the figure."""
    split = Split.from_documents([[[0] * size] for size in SIZES])
    starts = split.document_starts().tolist()
    plan = cut_documents(split, length=LENGTH, special_tokens=0, seed=0)
    packed = [
        [
            (end - start, int(np.searchsorted(starts, start, "right")) - 1)
            for start, end in plan.row(row)
        ]
        for row in range(len(plan))
    ]
    canvas = Canvas()
    padded = [[(size, number)] for number, size in enumerate(SIZES)]
    height = 16.0
    for title, rows in (("a row for each document", padded), ("packed", packed)):
        share = 1 - sum(SIZES) / (len(rows) * LENGTH)
        canvas.text(16, height + 14, title, "title")
        canvas.text(
            16 + CELL * LENGTH, height + 14, f"{len(rows)} rows, {share:.0%} padding", "muted end"
        )
        for row in rows:
            height += TALL + 6
            _row(canvas, row, height - 6)
        height += TALL + 26
    _mask(canvas, packed)
    label = (
        f"{len(SIZES)} documents fill {len(padded)} rows with padding, and {len(packed)} "
        "packed rows; tokens attend to tokens of their own document only"
    )
    return canvas.svg(height - 14, label)


def _row(canvas: Canvas, pieces: list[tuple[int, int]], y: float) -> None:
    """Draw a row, which has a number of tokens of each of several documents."""
    x: float = 16
    if sum(size for size, _ in pieces) < LENGTH:
        canvas.box(x, y, CELL * LENGTH, TALL, "line dashed", 3)
    for size, document in pieces:
        canvas.box(x, y, CELL * size, TALL, COLOURS[document], 3)
        canvas.text(x + CELL * size / 2, y + 16, chr(ord("A") + document), "small middle")
        x += CELL * size


def _mask(canvas: Canvas, rows: list[list[tuple[int, int]]]) -> None:
    """Draw the attention of the packed row that has most documents."""
    number, row = max(enumerate(rows, 1), key=lambda pair: len(pair[1]))
    side = 9.0
    x = 430
    y = 74
    canvas.text(x, 30, "attention of a packed row", "title")
    canvas.text(x, 50, f"Row {number}: tokens attend to their own document only,", "muted")
    canvas.text(x, 65, "and positions begin again with each document.", "muted")
    canvas.box(x, y, side * LENGTH, side * LENGTH, "plain", 2)
    ends = np.cumsum([0, *(size for size, _ in row)]).tolist()
    for (first, last), (_, document) in zip(pairwise(ends), row, strict=True):
        at = side * first
        size = side * (last - first)
        canvas.box(x + at, y + at, size, size, COLOURS[document], 2)
        canvas.text(
            x + at + size / 2, y + at + size / 2 + 4, chr(ord("A") + document), "small middle"
        )
