"""Reader of tables of rows with named columns: TSV, CSV, JSON lines and Parquet."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from zoo.data.readers.delimited import DELIMITERS, find_dialect, read_records
from zoo.data.readers.parquet import PARQUET, ClassColumns, open_parquet, rows_of_batch
from zoo.data.readers.problems import NoProblems, RowError, RowProblems
from zoo.data.readers.text_io import COMPRESSED, read_lines
from zoo.errors import UsageError, VerificationError, did_you_mean
from zoo.io.json import parse_json
from zoo.io.numbers import is_number

JSON_LINES = (".jsonl", ".ndjson")
PARQUET_ROWS = 1024  # that are read together
SEARCHED = 100  # rows of JSON lines: one of the first must have the columns


@dataclass(frozen=True, slots=True)
class Row:
    """A row of a table."""

    location: str  # file and line, for messages
    values: dict[str, Any]  # column -> value: text, or any value of JSON or Parquet
    types: Mapping[str, str] | None = None  # column -> type, of a Parquet file

    def text(self, name: str) -> str:
        """Return the value of a column after checking that it is text."""
        value = self.values[name]
        if not isinstance(value, str):
            self.require_type(name, "string", value)
        return require_text(value, f"{self.location}: {name}")

    def require_type(self, name: str, expected: str, value: Any) -> None:
        """Raise an error that names the type of a Parquet column, unless its value is null."""
        if self.types is None or value is None:
            return
        file = self.location.rpartition(", row ")[0]
        raise UsageError(
            f"{file}: the column {name!r} has the type {self.types[name]:.100}, not {expected}",
            f"cast it to {expected}, or name another column",
        )


def read_table(path: Path, columns: Sequence[str], problems: RowProblems) -> Iterator[Row]:
    """Yield the rows of a table with the values of some columns, all of them texts."""

    def require_texts(row: Row) -> None:
        for name in columns:
            row.text(name)

    return problems.valid(read_rows(path, columns, problems), require_texts)


def require_text(value: Any, location: str) -> str:
    """Return a value after checking that it is text."""
    if value is None:
        raise RowError(f"{location} is null, where text is needed", "give it a text")
    if not isinstance(value, str):
        raise RowError(f"{location} is {value!r:.200}, which is not text", "write it in quotes")
    return value


def parse_cell(text: str, location: str) -> Any:
    """Return the value of a cell, or a line, that is JSON."""
    try:
        return parse_json(text.encode(), location)
    except VerificationError as error:
        raise RowError(error.what, error.hint) from error


def read_rows(
    path: Path,
    columns: Sequence[str] | None,
    problems: RowProblems | None = None,
    *,
    others: bool = False,  # yield the other columns as well
    suffix: str | None = None,  # replacement of the file's suffix
) -> Iterator[Row]:
    """Yield the rows of a table with the values of some columns, or of all."""
    # The suffix of the file decides the format: ``.tsv`` and ``.txt`` have tabs and no quotes,
    # ``.csv`` has commas and quotes where needed, both with the names of the columns in the first
    # line, or another separator that the first rows agree on, see ``find_dialect``; ``.jsonl`` and
    # ``.ndjson`` have one JSON object per line; ``.parquet`` is Parquet. Blank lines are skipped.
    # If all columns are numbers, such as ``2``, a text table has no header, and its columns are
    # counted from 1.
    suffix = suffix or suffix_of(path)
    problems = problems or NoProblems()
    if suffix in JSON_LINES:
        return _json_rows(path, columns, problems, others)
    if suffix in DELIMITERS:
        return _delimited_rows(path, columns, suffix, problems, others)
    if suffix == PARQUET:
        return _parquet_rows(path, columns, problems, others)
    known = ", ".join((*DELIMITERS, *JSON_LINES, PARQUET))
    raise UsageError(f"{path} is not a table that can be read", f"its name must end in {known}")


def suffix_of(path: Path) -> str:
    """Return the suffix of a file's format in lower case, without a compression's."""
    known = [suffix.lower() for suffix in path.suffixes if suffix.lower() not in COMPRESSED]
    return known[-1] if known else ""


def column_names(path: Path, suffix: str | None = None) -> tuple[str, ...]:
    """Return the names of a table's columns, from its header or its first usable row, if any."""
    suffix = suffix or suffix_of(path)
    if suffix in DELIMITERS:
        for _, cells in read_records(path, find_dialect(path, suffix)):
            if isinstance(cells, RowError):
                raise cells
            if any(cells):
                return tuple(cells)
        return ()
    first = next(read_rows(path, None, RowProblems(skip=True), suffix=suffix), None)
    return () if first is None else tuple(first.values)


def _json_rows(
    path: Path, columns: Sequence[str] | None, problems: RowProblems, others: bool
) -> Iterator[Row]:
    def row_of(numbered: tuple[int, str]) -> Row:
        number, line = numbered
        location = f"{path}:{number}"
        row = parse_cell(line, location)
        if not isinstance(row, dict):
            raise RowError(f"{location} is not a JSON object", "give one object per line")
        return Row(location, row)

    numbered = enumerate(read_lines(path, rows=True), 1)
    rows = problems.checked(((number, line) for number, line in numbered if line), row_of)
    # rows without a column, until one has them all
    lacking = list[RowError]()
    found = False
    for row in rows:
        location = row.location
        try:
            values = _select(row.values, columns, location, others=others)
        except RowError as error:
            if found:
                problems.add(error)
            else:
                lacking.append(error)
            if len(lacking) == SEARCHED:
                raise lacking[0] from error
            continue
        for before in lacking:
            problems.add(before)
        lacking = []
        found = True
        yield Row(location, values)
    if lacking:
        raise lacking[0]


def _delimited_rows(
    path: Path, columns: Sequence[str] | None, suffix: str, problems: RowProblems, others: bool
) -> Iterator[Row]:
    numbered = columns is not None and all(map(is_number, columns))
    dialect = find_dialect(path, suffix, columns)
    header = list[str]()
    for number, cells in read_records(path, dialect):
        location = f"{path}:{number}"
        if isinstance(cells, RowError):
            if not header:
                raise cells
            problems.add(cells)
            continue
        if not any(cells):
            continue
        if not header:
            header = list(map(str, range(1, len(cells) + 1))) if numbered else cells
            _require_columns(header, columns, location)
            if not numbered:
                continue
        if more := len(cells) - len(header):
            problems.add(
                RowError(
                    f"{location} has {len(cells)} columns, and the "
                    f"{'first line' if numbered else 'header'} has {len(header)}",
                    "put a cell with a separator in quotes"
                    if dialect.has_quotes and more > 0
                    else "",
                )
            )
            continue
        row = dict(zip(header, cells, strict=True))
        values = _select(row, columns, location, others=others)
        if any("\0" in value for value in values.values()):
            problems.add(RowError(f"{location} has a NUL character"))
            continue
        yield Row(location, values)


def _parquet_rows(
    path: Path, columns: Sequence[str] | None, problems: RowProblems, others: bool
) -> Iterator[Row]:
    with open_parquet(path) as table:
        schema = table.schema_arrow
        _require_columns(schema.names, columns, str(path))
        types = {field.name: str(field.type) for field in schema}
        classes = ClassColumns(path, schema.metadata)

        def row_of(numbered: tuple[int, dict[str, Any]]) -> Row:
            number, values = numbered
            location = f"{path}, row {number}"
            return Row(location, classes.decode(values, location), types)

        names = None if columns is None or others else list(columns)
        batches = table.iter_batches(batch_size=PARQUET_ROWS, columns=names)
        rows = chain.from_iterable(rows_of_batch(path, batch) for batch in batches)
        yield from problems.checked(enumerate(rows, 1), row_of)


def _require_columns(header: Sequence[str], columns: Sequence[str] | None, location: str) -> None:
    _select(dict.fromkeys(header), columns, location)
    for name in columns or ():
        if header.count(name) > 1:
            raise UsageError(f"{location} has several columns {name!r}", "rename all but one")


def _select(
    row: Mapping[str, Any], columns: Sequence[str] | None, location: str, *, others: bool = False
) -> dict[str, Any]:
    if columns is None:
        return dict(row)
    for name in columns:
        if name not in row:
            raise RowError(
                f"{location} has no column {name!r}",
                did_you_mean(name, list(row)) or f"there are {', '.join(map(str, row))}",
            )
    return dict(row) if others else {name: row[name] for name in columns}
