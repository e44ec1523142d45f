"""Reader of tables of rows with named columns: TSV, CSV, JSON lines and Parquet."""

import csv
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from zoo.data.readers.text_io import COMPRESSED, read_lines
from zoo.errors import SourceError, UsageError, VerificationError, did_you_mean
from zoo.io.files import open_regular
from zoo.io.json import parse_json
from zoo.io.limits import MAX_PARQUET_ITEMS, MAX_ROW_BYTES
from zoo.io.numbers import is_number

JSON_LINES = (".jsonl", ".ndjson")
DELIMITERS = {".tsv": "\t", ".txt": "\t", ".csv": ","}
PARQUET = ".parquet"
PARQUET_ROWS = 1024  # that are read together


class Row(NamedTuple):
    """A row of a table.

    Attributes:
        location: file and line, for messages.
        values: column -> value: text, or any value of JSON or Parquet.
    """

    location: str
    values: dict[str, Any]


def read_table(path: Path, columns: Sequence[str]) -> Iterator[Row]:
    """Yield the rows of a table with the values of some columns, all of them texts.

    Args:
        path: the file, see ``read_rows``.
        columns: names of the columns to read.

    Raises:
        UsageError, SourceError: see ``read_rows``.
        VerificationError: see ``read_rows``; or a value is not text.
    """
    for row in read_rows(path, columns):
        for name in columns:
            require_text(row.values[name], f"{row.location}: {name}")
        yield row


def require_text(value: Any, location: str) -> str:
    """Return a value after checking that it is text.

    Raises:
        VerificationError: it is not.
    """
    if not isinstance(value, str):
        raise VerificationError(f"{location} is {value!r}, which is not text", "write it in quotes")
    return value


def read_rows(
    path: Path, columns: Sequence[str] | None, *, others: bool = False, suffix: str | None = None
) -> Iterator[Row]:
    """Yield the rows of a table with the values of some columns, or of all.

    The suffix of the file decides the format: ``.tsv`` and ``.txt`` have tabs and no quotes,
    ``.csv`` has commas and quotes where needed, both with the names of the columns in the first
    line; ``.jsonl`` and ``.ndjson`` have one JSON object per line; ``.parquet`` is Parquet. Blank
    lines are skipped. If all columns are numbers, such as ``2``, a file with tabs or commas has no
    header, and its columns are counted from 1.

    Args:
        path: the file, also with a further ``.gz`` or ``.zst``, except for Parquet.
        columns: names of the columns to read; ``None`` for all, which the file has to name.
        others: yield the other columns, too; ``columns`` must be there.
        suffix: replacement of the file's suffix.

    Raises:
        UsageError: the format is unknown, or a column is missing (the nearest is named) or there
            more than once.
        SourceError: the file cannot be read.
        VerificationError: the file is damaged, or a row has another number of columns.
    """
    suffix = table_suffix(path) if suffix is None else suffix
    if suffix in JSON_LINES:
        return _json_rows(path, columns, others)
    if suffix in DELIMITERS:
        return _delimited_rows(path, columns, DELIMITERS[suffix], others)
    if suffix == PARQUET:
        return _parquet_rows(path, columns, others)
    known = ", ".join((*DELIMITERS, *JSON_LINES, PARQUET))
    raise UsageError(f"{path} is not a table that can be read", f"its name must end in {known}")


def table_suffix(path: Path) -> str:
    """Return the suffix of a file in lower case, without the one of a compression."""
    suffixes = [suffix.lower() for suffix in path.suffixes]
    if suffixes and suffixes[-1] in COMPRESSED:
        suffixes.pop()
    return suffixes[-1] if suffixes else ""


def column_names(path: Path, suffix: str | None = None) -> tuple[str, ...]:
    """Return the names of the columns of a table: those of its first row; none without rows.

    Args:
        path, suffix: the file, see ``read_rows``.

    Raises:
        UsageError, SourceError, VerificationError: see ``read_rows``.
    """
    first = next(read_rows(path, None, suffix=suffix), None)
    return () if first is None else tuple(first.values)


def _json_rows(path: Path, columns: Sequence[str] | None, others: bool) -> Iterator[Row]:
    for number, line in enumerate(read_lines(path, rows=True), 1):
        if not line:
            continue
        location = f"{path}:{number}"
        row = parse_json(line.encode(), location)
        if not isinstance(row, dict):
            raise VerificationError(f"{location} is not a JSON object", "give one object per line")
        yield Row(location, _select(row, columns, location, others=others))


def _delimited_rows(
    path: Path, columns: Sequence[str] | None, delimiter: str, others: bool
) -> Iterator[Row]:
    lines = (f"{line}\n" for line in read_lines(path, rows=True, strip=False))
    quote = None if delimiter == "\t" else '"'
    csv.field_size_limit(MAX_ROW_BYTES)  # by default 131,072 characters
    reader = csv.reader(lines, delimiter=delimiter, quotechar=quote, strict=True)
    numbered = columns is not None and all(map(is_number, columns))
    header: list[str] = []
    try:
        for cells in reader:
            location = f"{path}:{reader.line_num}"
            if not any(cells):
                continue
            if not header:
                header = list(map(str, range(1, len(cells) + 1))) if numbered else cells
                _require_columns(header, columns, location)
                if not numbered:
                    continue
            if len(cells) != len(header):
                raise VerificationError(
                    f"{location} has {len(cells)} columns, and the "
                    f"{'first line' if numbered else 'header'} has {len(header)}",
                    "correct the line",
                )
            values = dict(zip(header, cells, strict=True))
            yield Row(location, _select(values, columns, location, others=others))
    except csv.Error as error:
        raise VerificationError(f"{path}:{reader.line_num}: {error}", "correct the line") from error


def _parquet_rows(path: Path, columns: Sequence[str] | None, others: bool) -> Iterator[Row]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise SourceError(
            f"reading {path} takes pyarrow, which is not installed",
            "pip install 'plm-zoo[parquet]'",
        ) from error
    number, limits = 0, MAX_PARQUET_ITEMS
    try:
        with open_regular(path) as source:
            table = pyarrow.parquet.ParquetFile(
                source, thrift_string_size_limit=limits, thrift_container_size_limit=limits
            )
            _require_columns(table.schema_arrow.names, columns, str(path))
            names = None if columns is None or others else list(columns)
            for batch in table.iter_batches(batch_size=PARQUET_ROWS, columns=names):
                for values in batch.to_pylist():
                    number += 1
                    yield Row(f"{path}, row {number}", values)
    except (pyarrow.ArrowException, OSError, UnicodeError, ValueError) as error:
        why = " ".join(str(error).split())[:200]
        raise VerificationError(
            f"{path} is not a Parquet file: {why}", "download it again"
        ) from error


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
            raise UsageError(
                f"{location} has no column {name!r}",
                did_you_mean(name, list(row)) or f"there are {', '.join(map(str, row))}",
            )
    return dict(row) if others else {name: row[name] for name in columns}
