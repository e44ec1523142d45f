"""Tables of results, written row by row: JSON lines, CSV, TSV or Parquet, by the file's ending."""

import contextlib
import csv
import io
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

from zoo.errors import UsageError
from zoo.io.json import dump_json
from zoo.io.numbers import parse_float
from zoo.io.output.full_disks import close_quietly, writing
from zoo.io.output.overwrite import check_file
from zoo.io.output.parquet import json_groups, require_pyarrow, write_parquet
from zoo.io.output.staging import parent_directories, staged_path
from zoo.overrides import override

Row = Mapping[str, Any]
WriteRow = Callable[[Row], None]

PARQUET = ".parquet"
DELIMITERS = {".csv": ",", ".tsv": "\t"}
# Spreadsheets compute a cell that begins like this.
FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r")


def check_table(
    path: Path, *, force: bool = False, sources: Iterable[Path] = (), excel_safe: bool = False
) -> None:
    """Raise an error if a table cannot be written to a file, before its rows are computed."""
    if path.suffix.lower() not in FORMATS:
        raise UsageError(f"{path}: the format is unknown", f"end the name in {', '.join(FORMATS)}")
    require_cells(path, excel_safe=excel_safe)
    check_file(path, force=force, sources=sources)
    if path.suffix.lower() == PARQUET:
        require_pyarrow(path)


def require_cells(path: Path, *, excel_safe: bool) -> None:
    """Raise an error if cells are to be safe in a format that has none."""
    if excel_safe and path.suffix.lower() not in DELIMITERS:
        raise UsageError(
            f"{path}: only .csv and .tsv have cells that a spreadsheet may compute",
            "leave --excel-safe out",
        )


@contextlib.contextmanager
def table_writer(
    path: Path, *, force: bool = False, sources: Iterable[Path] = (), excel_safe: bool = False
) -> Iterator[WriteRow]:
    """Yield a function that writes a row; the file appears when the block ends without an error."""
    # All rows have the keys of the first one, in any order. In CSV and TSV, lists and mappings are
    # JSON; with ``excel_safe``, ' precedes texts that a spreadsheet would compute.
    sources = list(sources)
    check_table(path, force=force, sources=sources, excel_safe=excel_safe)
    with contextlib.ExitStack() as stack:
        with writing(path):
            stack.enter_context(parent_directories(path))
            staging = stack.enter_context(staged_path(path))
            file = staging.open("xb")
            stack.callback(close_quietly, file)
            write = FORMATS[path.suffix.lower()](file, path, excel_safe=excel_safe)
            stack.callback(write.release)

        def write_row(row: Row) -> None:
            with writing(path):
                write(row)

        yield write_row
        with writing(path):
            write.close()
            file.flush()
            os.fsync(file.fileno())
            check_file(path, force=force, sources=sources)
            os.replace(staging, path)


class _Writer:
    """Writer of a format."""

    def __init__(self, file: BinaryIO, path: Path, *, excel_safe: bool) -> None:
        self._file = file
        self._path = path

    def __call__(self, row: Row) -> None:
        raise NotImplementedError

    def close(self) -> None:
        """Write what is left."""

    def release(self) -> None:
        """Release what the writer holds, before the file is closed; also after an error."""


class _JsonLines(_Writer):
    @override
    def __call__(self, row: Row) -> None:
        self._file.write(json_row(row))


def json_row(row: Row) -> bytes:
    """Return a row of JSON lines."""
    try:
        return f"{dump_json(row, ensure_ascii=False, default=str)}\n".encode()
    except UnicodeEncodeError:  # half of a surrogate pair, which JSON can escape
        return f"{dump_json(row, default=str)}\n".encode()


class _Delimited(_Writer):
    def __init__(self, file: BinaryIO, path: Path, *, excel_safe: bool) -> None:
        super().__init__(file, path, excel_safe=excel_safe)
        self._encode = RowEncoder(path, excel_safe=excel_safe)
        self._columns: list[str] = []

    @override
    def __call__(self, row: Row) -> None:
        if not self._columns:
            self._columns = list(row)
            self._file.write(self._encode(self._columns))
        self._file.write(self._encode([row.get(name) for name in self._columns]))


class RowEncoder:
    """Encodes rows of CSV or TSV: lists and mappings are JSON, and cells have quotes if needed."""

    # Half of a surrogate pair, which UTF-8 lacks, is escaped.

    def __init__(self, path: Path, *, excel_safe: bool) -> None:
        self._delimiter = DELIMITERS[path.suffix.lower()]
        self._format = _excel_cell if excel_safe else _cell

    def __call__(self, cells: Sequence[Any]) -> bytes:
        """Return the bytes of a row."""
        text = io.StringIO(newline="")
        # The csv module only quotes the line ends that it writes, and a lone \\r ends lines too.
        rows = csv.writer(text, delimiter=self._delimiter, lineterminator="\r\n")
        rows.writerow(list(map(self._format, cells)))
        line = text.getvalue().removesuffix("\r\n")
        return f"{line}\n".encode(errors="backslashreplace")


def _cell(value: Any) -> Any:
    """Return the cell of a delimited table for a value: JSON for lists and mappings."""
    if isinstance(value, bool | list | tuple | dict):
        return dump_json(value, ensure_ascii=False)
    return "" if value is None else value


def _excel_cell(value: Any) -> Any:
    """Return a cell that no spreadsheet takes for a formula."""
    # https://owasp.org/www-community/attacks/CSV_Injection; a number such as -1 stays a number.
    cell = _cell(value)
    is_text = isinstance(cell, str) and parse_float(cell) is None
    return f"'{cell}" if is_text and cell.startswith(FORMULA_STARTS) else cell


class _Parquet(_Writer):
    """Keeps rows as JSON lines in a temporary file until the types of all are known."""

    def __init__(self, file: BinaryIO, path: Path, *, excel_safe: bool) -> None:
        super().__init__(file, path, excel_safe=excel_safe)
        require_pyarrow(path)
        self._rows = tempfile.TemporaryFile(dir=path.parent)  # noqa: SIM115 (see release)

    @override
    def __call__(self, row: Row) -> None:
        self._rows.write(json_row(row))

    @override
    def close(self) -> None:
        write_parquet(self._path, partial(json_groups, self._rows), self._file)

    @override
    def release(self) -> None:
        close_quietly(self._rows)


FORMATS: Mapping[str, type[_Writer]] = {
    ".jsonl": _JsonLines,
    ".ndjson": _JsonLines,
    ".csv": _Delimited,
    ".tsv": _Delimited,
    PARQUET: _Parquet,
}
