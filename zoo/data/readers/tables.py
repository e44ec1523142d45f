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
from zoo.io.paths import readable_name

JSON_LINES = (".jsonl", ".ndjson")
PARQUET_ROWS = 1024  # Rows that are read together.
# One of so many first rows of JSON lines must have the columns.
MAX_ROWS_SEARCHED = 100


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
    others: bool = False,
    suffix: str | None = None,
) -> Iterator[Row]:
    """Yield the rows of a table with the values of some columns, or of all.

    The suffix of the file decides the format: ``.tsv`` and ``.txt`` have tabs and no quotes,
    ``.csv`` has commas and quotes where needed, both with the names of the columns in the first
    line, or another separator that the first rows agree on, see ``find_dialect``; ``.jsonl`` and
    ``.ndjson`` have one JSON object per line; ``.parquet`` is Parquet. Blank lines are skipped. If
    all columns are numbers, such as ``2``, a text table has no header, and its columns are counted
    from 1.

    Args:
        path: the table.
        columns: names of columns that the table must have; ``None`` for all of the table's.
        problems: collects rows that cannot be used; ``None`` to raise the first error.
        others: whether rows have the other columns as well.
        suffix: replacement of the file's suffix.
    """
    suffix = suffix or suffix_of(path)
    problems = problems or NoProblems()
    if suffix in JSON_LINES:
        return _json_rows(path, columns, problems, others)
    if suffix in DELIMITERS:
        return _delimited_rows(path, columns, suffix, problems, others)
    if suffix == PARQUET:
        return _parquet_rows(path, columns, problems, others)
    suffixes = ", ".join((*DELIMITERS, *JSON_LINES, PARQUET))
    raise UsageError(f"{path} is not a table that can be read", f"its name must end in {suffixes}")


def suffix_of(path: Path) -> str:
    """Return the suffix of a file's format in lower case, without a compression's."""
    for suffix in reversed(path.suffixes):
        if suffix.lower() not in COMPRESSED:
            return suffix.lower()
    return ""


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
    first_row = next(read_rows(path, None, RowProblems(skip=True), suffix=suffix), None)
    if first_row is None:
        return ()
    return tuple(first_row.values)


def _json_rows(
    path: Path, columns: Sequence[str] | None, problems: RowProblems, others: bool
) -> Iterator[Row]:
    file = readable_name(path)

    def parse_row(numbered_line: tuple[int, str]) -> Row:
        number, line = numbered_line
        location = f"{file}:{number}"
        values = parse_cell(line, location)
        if not isinstance(values, dict):
            raise RowError(f"{location} is not a JSON object", "give one object per line")
        return Row(location, values)

    numbered_lines = enumerate(read_lines(path, rows=True), 1)
    filled_lines = ((number, line) for number, line in numbered_lines if line)
    # Errors of the first rows that lack a column. If none of them has all, the columns are wrong.
    first_errors: list[RowError] = []
    has_columns = False
    for row in problems.checked(filled_lines, parse_row):
        try:
            values = _select(row.values, columns, row.location, others=others)
        except RowError as error:
            if has_columns:
                problems.add(error)
                continue
            first_errors.append(error)
            if len(first_errors) == MAX_ROWS_SEARCHED:
                raise first_errors[0] from error
            continue
        has_columns = True
        for first_error in first_errors:
            problems.add(first_error)
        first_errors = []
        yield Row(row.location, values)
    if first_errors:
        raise first_errors[0]


def _delimited_rows(
    path: Path, columns: Sequence[str] | None, suffix: str, problems: RowProblems, others: bool
) -> Iterator[Row]:
    is_numbered = columns is not None and all(map(is_number, columns))
    dialect = find_dialect(path, suffix, columns)
    header: list[str] = []
    file = readable_name(path)
    for number, cells in read_records(path, dialect):
        location = f"{file}:{number}"
        if isinstance(cells, RowError):
            if not header:
                raise cells
            problems.add(cells)
            continue
        if not any(cells):
            continue
        if not header and is_numbered:
            header = [str(column) for column in range(1, len(cells) + 1)]
            _require_columns(header, columns, location)
        elif not header:
            header = cells
            _require_columns(header, columns, location)
            continue
        if len(cells) != len(header):
            first_record = "first line" if is_numbered else "header"
            hint = ""
            if dialect.has_quotes and len(cells) > len(header):
                hint = "put a cell with a separator in quotes"
            problems.add(
                RowError(
                    f"{location} has {len(cells)} columns, and the {first_record} has "
                    f"{len(header)}",
                    hint,
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
        file = readable_name(path)

        def decode_row(numbered_row: tuple[int, dict[str, Any]]) -> Row:
            number, values = numbered_row
            location = f"{file}, row {number}"
            return Row(location, classes.decode(values, location), types)

        names = None
        if columns is not None and not others:
            names = list(columns)
        batches = table.iter_batches(batch_size=PARQUET_ROWS, columns=names)
        rows = chain.from_iterable(rows_of_batch(path, batch) for batch in batches)
        yield from problems.checked(enumerate(rows, 1), decode_row)


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
            suggestion = did_you_mean(name, list(row))
            remedy = f"there are {', '.join(map(str, row))}"
            if suggestion:
                remedy = f"{suggestion} There are {', '.join(map(str, row))}"
            raise RowError(f"{location} has no column {name!r}", remedy)
    if others:
        return dict(row)
    return {name: row[name] for name in columns}
