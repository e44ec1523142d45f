"""Records of tasks from tables: CSV, TSV and Parquet, read as fine-tuning reads them."""

import logging
import shutil
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import msgspec

from zoo.data.readers.parquet import PARQUET
from zoo.data.readers.tables import Row, column_names, read_rows
from zoo.errors import UsageError, VerificationError
from zoo.inference.processing.records import RecordKeys, TextExample, validate_text
from zoo.io.json import plain_text
from zoo.io.numbers import is_number
from zoo.io.scratch import scratch_directory

LOG = logging.getLogger("zoo")
SUFFIXES = {"csv": ".csv", "tsv": ".tsv", "parquet": PARQUET}
USUAL = ("text", "sentence")  # columns of single texts


class ColumnNames(NamedTuple):
    """Names of the columns of a table that are read: of the texts, and further ones of a task."""

    text: str
    pair: str | None = None
    others: tuple[str, ...] = ()

    @property
    def all(self) -> list[str]:
        """All names."""
        return [self.text, *([] if self.pair is None else [self.pair]), *self.others]


@dataclass(frozen=True)
class InputColumns:
    """Columns of a table, or keys of JSON lines, that hold the texts of a task."""

    # A task that reads further columns has a subclass.

    text: str | None = None  # name of the first text; ``None`` for the default
    pair: str | None = None  # name of the second text; ``None`` for the default
    reserved: Collection[str] = ()  # keys of results, under which no column is copied

    def headerless(self, keys: RecordKeys) -> ColumnNames:
        """Return the columns of a table without names."""
        return ColumnNames(self.text or keys.pair[0], self.pair)

    def find(self, path: Path, present: Sequence[str], keys: RecordKeys) -> ColumnNames:
        """Return the columns to read."""
        first, second = keys.pair
        if self.text is None and self.pair is None and keys.text is not None:
            if set(keys.pair) <= set(present):
                return ColumnNames(*keys.pair)
            found = next((name for name in (keys.text, *USUAL) if name in present), None)
            if found is None and len(present) == 1:
                found = present[0]
                LOG.info("%s: the texts are the column %r", path, found)
            if found is None:
                raise _unclear(path, present, "--text")
            return ColumnNames(found)
        text = self.text or first
        if keys.text is not None and self.pair is None:
            return ColumnNames(text, second if second in present else None)
        pair = self.pair or second
        missing = [
            option
            for option, given, name in (("--text", self.text, text), ("--pair", self.pair, pair))
            if given is None and name not in present
        ]
        if missing:
            raise _unclear(path, present, " and ".join(missing))
        return ColumnNames(text, pair)

    def extra(self, values: Mapping[str, Any], names: ColumnNames, location: str) -> dict[str, Any]:
        """Return what a record has of the further columns; by default nothing."""
        return {}


def read_table_records(
    path: Path, kind: str, keys: RecordKeys, columns: InputColumns
) -> Iterator[TextExample]:
    """Yield the records of a table, one at a time."""
    # Without names, the columns are ``keys``, or ``text``, ``sentence`` or the only one. Other
    # columns are copied to the results, except for those that the task writes itself.
    suffix = SUFFIXES[kind]
    try:
        headerless = columns.text is not None and is_number(columns.text)
        present = [] if headerless else column_names(path, suffix)
        names = columns.find(path, present, keys) if present else columns.headerless(keys)
        taken = {*keys.pair, *([keys.text] if keys.text else []), *columns.reserved}
        warned = False
        for row in read_rows(path, names.all, others=True, suffix=suffix):
            record, left_out = _record(row, names, columns, taken)
            if left_out and not warned:
                warned = True
                LOG.warning(
                    "warning: %s: results have keys of their own called %s, and leave out these "
                    "columns of the table",
                    path,
                    ", ".join(left_out),
                )
            yield record
    except VerificationError as error:
        raise UsageError(error.what, error.hint) from error


def spooled_records(
    file: BinaryIO, name: str, kind: str, *arguments: Any, **options: Any
) -> Iterator[TextExample]:
    """Yield the records of a table in a stream, which is first copied to a temporary file."""
    with scratch_directory() as folder:
        path = folder / f"table{SUFFIXES[kind]}"
        with path.open("wb") as copy:
            shutil.copyfileobj(file, copy)
        records = read_table_records(path, kind, *arguments, **options)
        try:
            for record in records:
                location = record.location.replace(str(path), name)
                yield TextExample(record.text, record.pair, record.extra, location)
        except UsageError as error:
            raise UsageError(error.what.replace(str(path), name), error.hint) from error


def _record(
    row: Row, names: ColumnNames, columns: InputColumns, taken: Collection[str]
) -> tuple[TextExample, list[str]]:
    """Return the record of a row, and the names of columns that it cannot have."""
    location = row.location
    values = row.values
    read = set(names.all)
    others = {name: value for name, value in values.items() if name not in read}
    extra: dict[str, Any] = {name: value for name, value in others.items() if name not in taken}
    extra |= columns.extra(values, names, location)

    def text(name: str) -> str:
        return validate_text(row.text(name), f"{location}: {name}")

    pair = None if names.pair is None or values[names.pair] is None else text(names.pair)
    # dates, decimals and bytes of Parquet as text
    extra = msgspec.to_builtins(extra, enc_hook=plain_text)
    record = TextExample(text(names.text), pair, extra, location)
    return record, [name for name in others if name in taken]


def _unclear(path: Path, present: Sequence[str], options: str) -> UsageError:
    return UsageError(
        f"{path} has the columns {', '.join(present)}, and it is unclear which to read",
        f"name them with {options}",
    )
