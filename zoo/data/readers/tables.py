"""Reader of tables of rows with named columns: TSV, CSV and JSON lines, optionally compressed."""

import csv
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from zoo.data.readers.text_io import COMPRESSED, read_lines
from zoo.errors import UsageError, VerificationError, did_you_mean
from zoo.io.json import parse_json

JSON_LINES = (".jsonl", ".ndjson")
DELIMITERS = {".tsv": "\t", ".txt": "\t", ".csv": ","}


def read_table(path: Path, columns: Sequence[str]) -> Iterator[dict[str, str]]:
    """Yield the rows of a table with the values of some columns.

    The suffix of the file decides the format: ``.tsv`` and ``.txt`` have tabs and no quotes,
    ``.csv`` has commas and quotes where needed, both with the names of the columns in the first
    line; ``.jsonl`` and ``.ndjson`` have one JSON object per line. Blank lines are skipped.

    Args:
        path: the file, also with a further ``.gz`` or ``.zst``.
        columns: names of the columns to read.

    Raises:
        UsageError: the format is unknown, or a column is missing (the nearest is named).
        SourceError: the file cannot be read.
        VerificationError: the file is damaged, or a row has another number of columns.
    """
    suffixes = [suffix.lower() for suffix in path.suffixes]
    if suffixes and suffixes[-1] in COMPRESSED:
        suffixes.pop()
    suffix = suffixes[-1] if suffixes else ""
    if suffix in JSON_LINES:
        return _json_rows(path, columns)
    if suffix in DELIMITERS:
        return _delimited_rows(path, columns, DELIMITERS[suffix])
    known = ", ".join((*DELIMITERS, *JSON_LINES))
    raise UsageError(f"{path} is not a table that can be read", f"its name must end in {known}")


def _json_rows(path: Path, columns: Sequence[str]) -> Iterator[dict[str, str]]:
    for number, line in enumerate(read_lines(path, rows=True), 1):
        if not line:
            continue
        location = f"{path}:{number}"
        row = parse_json(line.encode(), location)
        if not isinstance(row, dict):
            raise VerificationError(f"{location} is not a JSON object", "give one object per line")
        yield _select(row, columns, location)


def _delimited_rows(path: Path, columns: Sequence[str], delimiter: str) -> Iterator[dict[str, str]]:
    lines = read_lines(path, rows=True)
    quote = None if delimiter == "\t" else '"'
    reader = csv.reader(lines, delimiter=delimiter, quotechar=quote, strict=True)
    header: list[str] = []
    try:
        for cells in reader:
            location = f"{path}:{reader.line_num}"
            if not any(cells):
                continue
            if not header:
                header = cells
                _select(dict.fromkeys(header, ""), columns, location)
            elif len(cells) != len(header):
                raise VerificationError(
                    f"{location} has {len(cells)} columns, and the header has {len(header)}",
                    "correct the line",
                )
            else:
                yield _select(dict(zip(header, cells, strict=True)), columns, location)
    except csv.Error as error:
        raise VerificationError(f"{path}:{reader.line_num}: {error}", "correct the line") from error


def _select(row: Mapping[str, Any], columns: Sequence[str], location: str) -> dict[str, str]:
    for name in columns:
        if name not in row:
            raise UsageError(
                f"{location} has no column {name!r}",
                did_you_mean(name, list(row)) or f"there are {', '.join(map(str, row))}",
            )
        if not isinstance(row[name], str):
            raise VerificationError(
                f"{location}: {name} is {row[name]!r}, which is not text", "write it in quotes"
            )
    return {name: row[name] for name in columns}
