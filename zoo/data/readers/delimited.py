"""Records of text tables: cells with a separator, and quotes where needed."""

import csv
import functools
import itertools
import logging
import re
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from zoo.data.readers.problems import RowError
from zoo.data.readers.text_io import read_lines
from zoo.errors import UsageError
from zoo.io.files import count_reads
from zoo.io.limits import MAX_ROW_BYTES
from zoo.io.numbers import is_number

LOG = logging.getLogger("zoo")
TAB = "\t"
DELIMITERS = {".tsv": TAB, ".txt": TAB, ".csv": ","}
NAMES = {",": "commas", ";": "semicolons", TAB: "tabs", "|": "bars"}
# Excel's line before the header, with any separator that is not part of a word.
SEPARATOR_LINE = re.compile(r'"?sep=([^\w"\s]|\t)"?', re.IGNORECASE)
IDENTIFIER = re.compile(r"[\w.:/-]{1,64}")  # A column's name that is not a sentence.
# Lines and characters that decide the separator; at least so many lines are read.
SAMPLE_LINES = 200
SAMPLE_CHARACTERS = 1 << 18
MIN_SAMPLE_LINES = 3


class Dialect(NamedTuple):
    """Form of a text table."""

    delimiter: str
    has_quotes: bool  # whether a cell may be in quotes
    skipped_lines: int = 0  # up to a line such as ``sep=;``


class _Sample(NamedTuple):
    """The first lines of a file, without blank ones."""

    lines: Sequence[str]
    first_number: int  # number of the first of them in the file, from 1
    is_cut: bool  # whether the file has more


@dataclass(frozen=True)
class _Split:
    """The first records of a table, split by one separator."""

    dialect: Dialect
    header: Sequence[str]
    equal_rows: int  # number of rows with as many cells as the header
    rows: int
    is_prose: bool  # whether a space follows most separators, as in sentences

    @property
    def agreement(self) -> float:
        """The fraction of the rows with as many cells as the header, or 0 for one column."""
        if len(self.header) < 2:
            return 0.0
        if not self.rows:
            return 1.0
        return self.equal_rows / self.rows

    @property
    def agrees(self) -> bool:
        """Whether most rows have as many cells as the header."""
        return self.agreement > 0.5

    @property
    def has_names(self) -> bool:
        """Whether the cells of the first record may be names of several columns."""
        names = [name.strip() for name in self.header]
        return len(names) > 1 and all(map(IDENTIFIER.fullmatch, names))

    def has_columns(self, columns: Sequence[str]) -> bool:
        """Return whether there are some columns, by name or by number."""
        if all(map(is_number, columns)):
            return max(map(int, columns)) <= len(self.header)
        return set(columns) <= set(self.header)


def find_dialect(path: Path, suffix: str, columns: Sequence[str] | None = None) -> Dialect:
    """Return the form of a text table, and say which separator it has if its suffix does not.

    A line ``sep=;`` decides. Otherwise the header and most of the first rows have the same number
    of cells, two or more, with the right separator. A table in which several separators do this
    equally well is refused, unless only one of them gives ``columns``. Prose has commas as well:
    separators that a space follows do not split a table.
    """
    with count_reads([str(path)], lambda _: None):  # Progress counts the rows, which follow.
        sample = _first_lines(path)
    default = Dialect(DELIMITERS[suffix], suffix == ".csv")
    match = None
    if sample.lines:
        match = SEPARATOR_LINE.fullmatch(sample.lines[0])
    if match is None:
        dialect = _agreed_dialect(path, default, sample, columns)
    else:
        has_quotes = match[1] != TAB or default.has_quotes
        dialect = Dialect(match[1], has_quotes, sample.first_number)
    if dialect.delimiter != default.delimiter:
        _say_separator(path, dialect.delimiter)
    return dialect


@functools.cache
def _say_separator(path: Path, delimiter: str) -> None:
    """Log the separator of a table once in a process; commands read a table several times."""
    name = NAMES.get(delimiter, repr(delimiter))
    LOG.info("%s: reading columns that are separated by %s", path, name)


def _first_lines(path: Path) -> _Sample:
    lines = list[str]()
    first_number = 1
    characters = 0
    for number, line in enumerate(read_lines(path, rows=True, strip=False), 1):
        if not line:
            continue
        is_large = characters > SAMPLE_CHARACTERS and len(lines) >= MIN_SAMPLE_LINES
        if is_large or len(lines) == SAMPLE_LINES:
            return _Sample(lines, first_number, True)
        if not lines:
            first_number = number
        lines.append(line)
        characters += len(line)
    return _Sample(lines, first_number, False)


def _agreed_dialect(
    path: Path,
    default: Dialect,
    sample: _Sample,
    columns: Sequence[str] | None,
) -> Dialect:
    """Return the form that the first lines of a table agree on."""
    default_split = _split(path, default, sample)
    other_splits: list[_Split] = []
    for delimiter in NAMES:
        if delimiter != default.delimiter and any(delimiter in line for line in sample.lines):
            dialect = Dialect(delimiter, delimiter != TAB or default.has_quotes)
            other_splits.append(_split(path, dialect, sample))
    candidates = [split for split in other_splits if split.agrees and not split.is_prose]
    best = max([default_split, *candidates], key=lambda split: split.agreement)
    if columns:
        is_numbered = all(map(is_number, columns))
        splits = [default_split, *(candidates if is_numbered else other_splits)]
        matches = [split for split in splits if split.has_columns(columns)]
        if len(matches) == 1:
            return matches[0].dialect
        if default_split in matches and not is_numbered:
            return default
        if default_split in matches and len(default_split.header) < 2:
            # The text of a file without a header may happen to have separators.
            full_matches = [split for split in candidates if split.rows and split.agreement == 1]
            if full_matches:
                raise _ambiguous(path, [default_split, *full_matches])
            return default
    if not best.agreement:
        _require_one_column(path, default_split, other_splits, columns)
        return default
    ties = []
    for split in (default_split, *candidates):
        if split.agreement == best.agreement:
            ties.append(split)
    if len(ties) > 1:
        raise _ambiguous(path, ties)
    return best.dialect


def _require_one_column(
    path: Path,
    default_split: _Split,
    other_splits: Iterable[_Split],
    columns: Sequence[str] | None,
) -> None:
    """Refuse names of several columns in a table that would be read as one of one column."""
    if len(default_split.header) != 1 or (columns and default_split.has_columns(columns)):
        return
    for split in other_splits:
        if not split.has_names:
            continue
        if split.agrees:  # A space follows most of its separators.
            raise _ambiguous(path, [default_split, split])
        if split.is_prose:
            continue
        name = NAMES[split.dialect.delimiter]
        different_rows = split.rows - split.equal_rows
        raise UsageError(
            f"{path}: the header has {len(split.header)} columns separated by {name}, and "
            f"{different_rows:,} of the first {split.rows:,} rows have another number",
            f"put cells with {name} in quotes, or, if there is one column, "
            f"{_separator_hint(default_split)}",
        )


def _ambiguous(path: Path, splits: Sequence[_Split]) -> UsageError:
    readings = []
    for split in splits:
        count = len(split.header)
        name = NAMES[split.dialect.delimiter]
        if count > 1:
            readings.append(f"{count} columns with {name}")
        else:
            readings.append(f"1 column without {name}")
    return UsageError(
        f"{path} can be read in several ways: {', or '.join(readings)}",
        f"say which separator is right: {_separator_hint(splits[-1])}",
    )


def _separator_hint(split: _Split) -> str:
    delimiter = split.dialect.delimiter
    line = "sep= and a tab" if delimiter == TAB else f"sep={delimiter}"
    return f"write a line before the header, such as {line}"


def _split(path: Path, dialect: Dialect, sample: _Sample) -> _Split:
    """Split the first lines of a table by a separator."""
    header: list[str] = []
    rows = 0
    equal_rows = 0
    separators = 0
    spaces = 0  # Number of separators that a space follows.
    source = _Lines(iter(sample.lines))
    for _, cells in _records(source, path, dialect):
        if isinstance(cells, RowError):
            if not header or (sample.is_cut and source.ended_open):
                break  # There is no header, or the record may end in further lines.
            rows += 1
            continue
        if not any(cells):
            continue
        separators += len(cells) - 1
        spaces += sum(cell.startswith(" ") for cell in cells[1:])
        if header:
            rows += 1
            if len(cells) == len(header):
                equal_rows += 1
        else:
            header = cells
    return _Split(dialect, header, equal_rows, rows, 2 * spaces > separators)


class _Lines:
    """The lines of a file for ``csv.reader``, which may go back within a record."""

    def __init__(self, lines: Iterator[str]) -> None:
        self._lines = lines
        self._pending = deque[str]()  # Lines to read again.
        self.number = 0  # Number of the last line that was read.
        self.record: list[str] = []  # Lines since ``begin``.
        self._size = 0  # Characters of the record.
        # A quote that is open at the end of a line up to this one is not closed.
        self._open_until = 0
        self.ended_open = False  # Whether the file ended within the last record.

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        if self.record and (self.number < self._open_until or self._size > MAX_ROW_BYTES):
            raise StopIteration
        if self._pending:
            line = self._pending.popleft()
        else:
            next_line = next(self._lines, None)
            if next_line is None:
                self.ended_open = bool(self.record)
                raise StopIteration
            line = f"{next_line}\n"
        self.number += 1
        self.record.append(line)
        self._size += len(line)
        return line

    def begin(self) -> int:
        """Skip blank lines, and return the number of the first line of the next record."""
        self.record.clear()
        self._size = 0
        self.ended_open = False
        while self._pending and self._pending[0] == "\n":
            self._pending.popleft()
            self.number += 1
        # A file may have millions of blank lines, which csv.reader does not need to see.
        if not self._pending:
            for line in self._lines:
                if line:
                    self._pending.append(f"{line}\n")
                    break
                self.number += 1
        return self.number + 1

    def go_back(self) -> None:
        """Read the lines of the record again, without the first."""
        # All lines of the record began inside its quote, up to the one where it failed. A record
        # that begins in between, and is open at the end of its first line, goes through the same
        # states to the same failure. This keeps the time linear in the number of lines.
        self._open_until = max(self._open_until, self.number)
        self._pending.extendleft(reversed(self.record[1:]))
        self.number -= len(self.record) - 1


def read_records(path: Path, dialect: Dialect) -> Iterator[tuple[int, list[str] | RowError]]:
    """Yield the first line of each record, and its cells or what is wrong with it."""
    lines = read_lines(path, rows=True, strip=False)
    source = _Lines(itertools.islice(lines, dialect.skipped_lines, None))
    source.number = dialect.skipped_lines
    return _records(source, path, dialect)


def _records(
    lines: _Lines, path: Path, dialect: Dialect
) -> Iterator[tuple[int, list[str] | RowError]]:
    # After a quote that is not closed, reading goes on with the next line.
    quote = '"' if dialect.has_quotes else None
    csv.field_size_limit(MAX_ROW_BYTES)  # The default is 131,072 characters.
    reader = csv.reader(lines, delimiter=dialect.delimiter, quotechar=quote, strict=True)
    while True:
        number = lines.begin()
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            is_open = len(lines.record) > 1 or "end of data" in str(error)
            lines.go_back()
            what = "opens a quote that is not closed" if is_open else "has text after a quoted cell"
            yield (number, RowError(f"{path}:{number} {what}", "write a quote inside quotes twice"))
        else:
            yield number, cells
