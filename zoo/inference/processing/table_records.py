"""Records of tasks from tables: CSV, TSV and Parquet, read as fine-tuning reads them."""

import logging
import shutil
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
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
USUAL_COLUMNS = ("text", "sentence")  # columns of single texts


class ColumnNames(NamedTuple):
    """Names of the columns of a table that are read: of the texts, and further ones of a task."""

    text: str
    pair: str | None = None
    others: tuple[str, ...] = ()

    @property
    def all(self) -> list[str]:
        """All names."""
        names = [self.text]
        if self.pair is not None:
            names.append(self.pair)
        return [*names, *self.others]


@dataclass(frozen=True)
class InputColumns:
    """Columns of a table, or keys of JSON lines, that hold the texts of a task.

    A task that reads further columns has a subclass.
    """

    text: str | None = None  # name of the first text; ``None`` for the default
    pair: str | None = None  # name of the second text; ``None`` for the default
    reserved: Collection[str] = ()  # keys of results, under which no column is copied
    text_flag: str = "--text"  # option that names the first text, for messages
    pair_flag: str = "--pair"  # option that names the second text

    def headerless(self, keys: RecordKeys) -> ColumnNames:
        """Return the columns of a table without names."""
        return ColumnNames(self.text or keys.pair[0], self.pair)

    def result_key(self, name: str, default: str) -> str:
        """Return the key in results for a column of texts: its name, unless results have it."""
        return default if name in self.reserved else name

    def find(self, path: Path, present: Sequence[str], keys: RecordKeys) -> ColumnNames:
        """Return the columns to read."""
        default_text, default_pair = keys.pair
        if self.text is None and self.pair is None and keys.text is not None:
            if default_text in present and default_pair in present:
                return ColumnNames(default_text, default_pair)
            return ColumnNames(find_text_column(path, present, keys.text, self.text_flag))
        text = self.text or default_text
        if keys.text is not None and self.pair is None:
            return ColumnNames(text, default_pair if default_pair in present else None)
        pair = self.pair or default_pair
        missing_options = []
        if self.text is None and text not in present:
            missing_options.append(self.text_flag)
        if self.pair is None and pair not in present:
            missing_options.append(self.pair_flag)
        if missing_options:
            raise _unclear(path, present, " and ".join(missing_options))
        return ColumnNames(text, pair)

    def extra(self, values: Mapping[str, Any], names: ColumnNames, location: str) -> dict[str, Any]:
        """Return what a record has of the further columns; by default nothing."""
        return {}


def find_text_column(path: Path, present: Sequence[str], default: str, flag: str) -> str:
    """Return the column of single texts: a usual one, or the only one.

    Args:
        path: the table.
        present: the names of its columns.
        default: the name that is looked for first.
        flag: the option that names the column, for messages.

    Raises:
        UsageError: there are several columns, and none has a usual name.
    """
    for name in (default, *USUAL_COLUMNS):
        if name in present:
            return name
    if len(present) == 1:
        LOG.info("%s: the texts are the column %r", path, present[0])
        return present[0]
    raise _unclear(path, present, flag)


def read_table_records(
    path: Path, file_format: str, keys: RecordKeys, columns: InputColumns
) -> Iterator[TextExample]:
    """Yield the records of a table, one at a time.

    Without names, the columns are ``keys``, or ``text``, ``sentence`` or the only one. Other
    columns are copied to the results, except for those that the task writes itself.

    Args:
        path: the table.
        file_format: ``csv``, ``tsv`` or ``parquet``.
        keys: the keys of the task's texts.
        columns: the columns to read.
    """
    suffix = SUFFIXES[file_format]
    try:
        present: Sequence[str] = []
        if columns.text is None or not is_number(columns.text):
            present = column_names(path, suffix)
        names = columns.find(path, present, keys) if present else columns.headerless(keys)
        text_keys = _text_keys(names, keys, columns, has_header=bool(present))
        reserved_keys = {*columns.reserved, *(text_keys.values() - text_keys.keys())}
        has_warned = False
        for row in read_rows(path, names.all, others=True, suffix=suffix):
            record, omitted_columns = _record(row, names, columns, text_keys, reserved_keys)
            if omitted_columns and not has_warned:
                has_warned = True
                LOG.warning(
                    "warning: %s: results have keys of their own called %s, and leave out these "
                    "columns of the table",
                    path,
                    ", ".join(omitted_columns),
                )
            yield record
    except VerificationError as error:
        raise UsageError(error.what, error.hint) from error


def spooled_records(
    file: BinaryIO, name: str, file_format: str, *arguments: Any, **options: Any
) -> Iterator[TextExample]:
    """Yield the records of a table in a stream, which is first copied to a temporary file."""
    with scratch_directory() as folder:
        path = folder / f"table{SUFFIXES[file_format]}"
        with path.open("wb") as copy:
            shutil.copyfileobj(file, copy)
        records = read_table_records(path, file_format, *arguments, **options)
        try:
            for record in records:
                location = record.location.replace(str(path), name)
                yield replace(record, location=location)
        except UsageError as error:
            raise UsageError(error.what.replace(str(path), name), error.hint) from error


def _text_keys(
    names: ColumnNames, keys: RecordKeys, columns: InputColumns, *, has_header: bool
) -> dict[str, str]:
    """Return column -> key in results of the columns of texts."""
    defaults = keys.pair
    if names.pair is None and keys.text is not None:
        defaults = (keys.text, keys.pair[1])
    text_keys = {}
    for name, default in zip((names.text, names.pair), defaults, strict=True):
        if name is not None:
            # The columns of a table without a header have numbers and no names.
            text_keys[name] = columns.result_key(name, default) if has_header else default
    return text_keys


def _record(
    row: Row,
    names: ColumnNames,
    columns: InputColumns,
    text_keys: Mapping[str, str],
    reserved_keys: Collection[str],
) -> tuple[TextExample, list[str]]:
    """Return the record of a row, and the names of columns that it cannot have."""
    location = row.location
    values = row.values

    def read_text(name: str) -> str:
        return validate_text(row.text(name), f"{location}: {name}")

    text = read_text(names.text)
    pair = None
    if names.pair is not None and values[names.pair] is not None:
        pair = read_text(names.pair)
    task_values = columns.extra(values, names, location)
    extra: dict[str, Any] = {}
    result_columns: dict[str, Any] = {}
    omitted_columns = []
    for name, value in values.items():
        if name == names.text:
            result_columns[text_keys[name]] = text
        elif name == names.pair:
            if pair is not None:
                result_columns[text_keys[name]] = pair
        elif name in names.others:
            if name in task_values:
                result_columns[name] = task_values[name]
        elif name in reserved_keys:
            omitted_columns.append(name)
        else:
            # Dates, decimals and bytes of Parquet become text.
            extra[name] = msgspec.to_builtins(value, enc_hook=plain_text)
            result_columns[name] = extra[name]
    extra |= task_values
    return TextExample(text, pair, extra, location, result_columns), omitted_columns


def _unclear(path: Path, present: Sequence[str], options: str) -> UsageError:
    return UsageError(
        f"{path} has the columns {', '.join(present)}, and it is unclear which to read",
        f"name them with {options}",
    )
