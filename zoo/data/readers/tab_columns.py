"""Reader of data sets whose lines have a fixed number of columns, as they were published."""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from zoo.data.readers.problems import RowError
from zoo.data.readers.text_io import Encoding, read_lines
from zoo.errors import SourceError
from zoo.io.numbers import parse_float
from zoo.io.paths import readable_name

TAB = "\t"
MAX_TEXT_SHOWN = 60


class TabRow(NamedTuple):
    """A line of a file."""

    cells: list[str]
    location: str  # File and line, for messages.

    def number(self, column: int) -> float:
        """Return a cell that is a finite number."""
        value = parse_float(self.cells[column].strip())
        if value is None:
            cell = self.cells[column][:MAX_TEXT_SHOWN]
            raise RowError(
                f"{self.location}: {cell!r} in column {column + 1} is not a number",
                "correct it, or download the file again",
            )
        return value


def read_tab_rows(
    path: Path, columns: int, *, header: bool = False, encoding: Encoding = "utf-8"
) -> Iterator[TabRow]:
    """Yield the lines of a file, split at tabs.

    Quotes are part of the text, other separators are not guessed, and further columns are kept:
    these files are published as they are, and STS-B's have lines of different lengths.

    Args:
        path: the file.
        columns: number of columns that each line has, at least.
        header: whether the first line has the names of the columns, and is skipped.
        encoding: encoding of the file.

    Raises:
        RowError: a line has fewer columns.
        SourceError: the file has no lines.
    """
    name = readable_name(path)
    is_empty = True
    for number, line in enumerate(read_lines(path, rows=True, strip=False, encoding=encoding), 1):
        if header and number == 1:
            continue
        if not line.strip():
            continue
        cells = line.split(TAB)
        location = f"{name}:{number}"
        if len(cells) < columns:
            raise RowError(
                f"{location} has {len(cells)} columns separated by tabs, and should have {columns}",
                "download the file again",
            )
        is_empty = False
        yield TabRow(cells, location)
    if is_empty:
        raise SourceError(f"{path} has no lines", "download the file again")


def join_words(text: str) -> str:
    """Return a text with single spaces between words, and none at its ends."""
    return " ".join(text.split())
