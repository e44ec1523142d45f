"""Tables of learned positions for longer texts than those that they were trained on."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Rows = NDArray[Any]  # The vectors of positions, (positions, width), of any float dtype.


def repeat_positions(rows: "Rows", count: int) -> "Rows":
    """Return the vectors of more positions: those of the trained ones, again and again.

    Neighbouring positions keep their vectors, except where the table starts over (Beltagy et al.
    2020, arXiv:2004.05150, section 5). Values are copied bit for bit.

    Args:
        rows: vectors of the trained positions, (positions, width).
        count: number of positions of the result, of which the last repetition may be a part.
    """
    import numpy as np

    return rows[np.arange(count) % len(rows)]


def interpolate_positions(rows: "Rows", count: int) -> "Rows":
    """Return the vectors of more positions, between those of the trained ones.

    The first and the last position keep their vectors; those between are linear interpolations at
    equal distances, computed in float64 and rounded to the dtype of the table.

    Args:
        rows: vectors of the trained positions, (positions, width).
        count: number of positions of the result.
    """
    import numpy as np

    trained = np.asarray(rows, np.float64)
    places = np.linspace(0, len(rows) - 1, count)
    lower = np.floor(places).astype(np.int64)
    upper = np.minimum(lower + 1, len(rows) - 1)
    weight = (places - lower)[:, None]
    return ((1 - weight) * trained[lower] + weight * trained[upper]).astype(rows.dtype)


POSITION_METHODS: Mapping[str, "Callable[[Rows, int], Rows]"] = {
    "repeat": repeat_positions,
    "interpolate": interpolate_positions,
}


def grow_positions(
    table: "Rows", count: int, *, special_rows: int = 0, method: str = "repeat"
) -> "Rows":
    """Return a table of learned positions that has been grown, (special_rows + count, width).

    Args:
        table: the trained table, (special_rows + positions, width).
        count: number of positions of texts, at least as many as the table has.
        special_rows: number of rows before the position of a text's first token, such as two of
            padding; they stay as they are.
        method: name of an entry of ``POSITION_METHODS``.

    Raises:
        ValueError: the table has more positions.
    """
    import numpy as np

    positions = table[special_rows:]
    if not 0 < len(positions) <= count:
        raise ValueError(f"a table of {len(positions)} positions does not grow to {count}")
    grown = POSITION_METHODS[method](positions, count)
    return np.concatenate([table[:special_rows], grown])
