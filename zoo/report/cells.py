"""What notebooks show for results, as HTML: tables, and pages in a frame."""

from collections.abc import Iterable, Mapping, Sequence

from zoo.report import html

MAX_ROWS = 20  # Rows of a table that a cell shows.
MAX_CHARACTERS = 200  # Characters of a value that a cell shows.
FRAME_HEIGHT = 680  # Height of a page in a cell, in pixels.


def fields_cell(title: str, fields: Mapping[str, object]) -> str:
    """Return names and values as HTML."""
    return table_cell(title, (), [(name, value) for name, value in fields.items()])


def table_cell(title: str, header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a table as HTML, with its first rows if it is long."""
    shown_rows = []
    count = 0
    for row in rows:
        count += 1
        if count <= MAX_ROWS:
            shown_rows.append([_short(value) for value in row])
    note = f"the first {MAX_ROWS} of {count:,} rows" if count > MAX_ROWS else ""
    return html.render("cell.html", title=title, header=header, rows=shown_rows, note=note)


def page_cell(title: str, page: str) -> str:
    """Return a page as HTML in a frame."""
    return html.render("frame.html", title=title, page=page, height=FRAME_HEIGHT)


def _short(value: object) -> str:
    """Return a value as text: numbers with six digits, and the beginning of long texts."""
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    text = str(value)
    if len(text) > MAX_CHARACTERS:
        return f"{text[:MAX_CHARACTERS]}..."
    return text
