"""Tables of results, written row by row: JSON lines, CSV, TSV or Parquet, by the file's ending."""

import contextlib
import csv
import io
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

from zoo.errors import SourceError, UsageError
from zoo.io.json import dump_json
from zoo.io.output.atomic import writing
from zoo.io.output.overwrite import check_file
from zoo.io.output.staging import staged_path
from zoo.overrides import override

Row = Mapping[str, Any]
WriteRow = Callable[[Row], None]

ROWS_AT_ONCE = 4096  # of a row group of Parquet
PARQUET = ".parquet"


def check_table(path: Path, *, force: bool = False, sources: Iterable[Path] = ()) -> None:
    """Raise an error if a table cannot be written to a file, before its rows are computed."""
    if path.suffix.lower() not in FORMATS:
        raise UsageError(f"{path}: the format is unknown", f"end the name in {', '.join(FORMATS)}")
    check_file(path, force=force, sources=sources)
    if path.suffix.lower() == PARQUET:
        require_pyarrow(path)


@contextlib.contextmanager
def table_writer(
    path: Path, *, force: bool = False, sources: Iterable[Path] = ()
) -> Iterator[WriteRow]:
    """Yield a function that writes a row; the file appears when the block ends without an error."""
    # All rows have the keys of the first one, in any order. In CSV and TSV, lists and mappings are
    # JSON
    sources = list(sources)
    check_table(path, force=force, sources=sources)
    with contextlib.ExitStack() as stack:
        with writing(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            staging = stack.enter_context(staged_path(path))
            file = stack.enter_context(staging.open("xb"))
            write = FORMATS[path.suffix.lower()](file, path)
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

    def __init__(self, file: BinaryIO, path: Path) -> None:
        self._file, self._path = file, path

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
        return f"{dump_json(row, ensure_ascii=False)}\n".encode()
    except UnicodeEncodeError:  # half of a surrogate pair, which JSON can escape
        return f"{dump_json(row)}\n".encode()


class _Delimited(_Writer):
    def __init__(self, file: BinaryIO, path: Path) -> None:
        super().__init__(file, path)
        self._text = io.TextIOWrapper(file, "utf-8", newline="")
        delimiter = "\t" if path.suffix.lower() == ".tsv" else ","
        self._rows = csv.writer(self._text, delimiter=delimiter, lineterminator="\n")
        self._columns: list[str] = []

    @override
    def __call__(self, row: Row) -> None:
        if not self._columns:
            self._columns = list(row)
            self._rows.writerow(self._columns)
        self._rows.writerow([format_cell(row.get(name)) for name in self._columns])

    @override
    def close(self) -> None:
        self._text.flush()
        self._text.detach()


def format_cell(value: Any) -> Any:
    """Return the cell of a delimited table for a value: JSON for lists and mappings."""
    if isinstance(value, bool | list | tuple | dict):
        return dump_json(value, ensure_ascii=False)
    return "" if value is None else value


class _Parquet(_Writer):
    def __init__(self, file: BinaryIO, path: Path) -> None:
        super().__init__(file, path)
        self._pyarrow = require_pyarrow(path)
        self._waiting = list[Row]()
        self._writer: Any = None

    @override
    def __call__(self, row: Row) -> None:
        self._waiting.append(dict(row))
        if len(self._waiting) >= ROWS_AT_ONCE:
            self._flush()

    @override
    def close(self) -> None:
        self._flush()
        self._writer.close()

    @override
    def release(self) -> None:
        if self._writer is not None:
            self._writer.close()  # which may be repeated

    def _flush(self) -> None:
        pyarrow: Any = self._pyarrow
        schema = None if self._writer is None else self._writer.schema
        try:
            table = pyarrow.Table.from_pylist(self._waiting, schema=schema)
        except (pyarrow.ArrowException, TypeError) as error:
            why = " ".join(str(error).split())[:200]
            raise UsageError(
                f"{self._path}: a column has values of several types: {why}", "write .jsonl"
            ) from error
        if self._writer is None:
            # a column without a value so far is one of texts
            types = [(f.name, f.type) for f in table.schema]
            schema = pyarrow.schema(
                [
                    (name, pyarrow.string() if kind == pyarrow.null() else kind)
                    for name, kind in types
                ]
            )
            table = table.cast(schema)
            self._writer = pyarrow.parquet.ParquetWriter(self._file, schema)
        self._writer.write_table(table)
        self._waiting.clear()


def require_pyarrow(path: Path) -> Any:
    """Return the module pyarrow, which writes Parquet."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise SourceError(
            f"writing {path} takes pyarrow, which is not installed",
            "pip install pyarrow, or write .jsonl",
        ) from error
    return pyarrow


FORMATS: Mapping[str, type[_Writer]] = {
    ".jsonl": _JsonLines,
    ".ndjson": _JsonLines,
    ".csv": _Delimited,
    ".tsv": _Delimited,
    PARQUET: _Parquet,
}
