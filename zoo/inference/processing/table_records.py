"""Records of tasks from tables: CSV, TSV and Parquet, read as fine-tuning reads them."""

import logging
import shutil
import tempfile
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from zoo.data.readers.choices import ChoiceColumns, parse_choices, resolve_columns
from zoo.data.readers.tables import PARQUET, Row, column_names, read_rows, require_text
from zoo.errors import UsageError, VerificationError
from zoo.inference.processing.records import RecordKeys, TextExample, validate_text
from zoo.io.numbers import is_number

LOG = logging.getLogger("zoo")
SUFFIXES = {"csv": ".csv", "tsv": ".tsv", "parquet": PARQUET}
USUAL = ("text", "sentence")  # columns of single texts
CHOICES = "choices"


@dataclass(frozen=True)
class InputColumns:
    """Columns of a table, or keys of JSON lines, that hold the texts of a task.

    Attributes:
        text: name of the first text; ``None`` for the default.
        pair: name of the second text; ``None`` for the default.
        choices: column of lists of choices, or columns of one choice each.
        reserved: keys of results, under which no column is copied.
    """

    text: str | None = None
    pair: str | None = None
    choices: Sequence[str] = ()
    reserved: Collection[str] = ()


@dataclass(frozen=True)
class _Names:
    """Names of the columns that are read."""

    text: str
    pair: str | None = None
    choices: tuple[str, ...] = ()

    @property
    def all(self) -> list[str]:
        return [self.text, *([] if self.pair is None else [self.pair]), *self.choices]


def read_table_records(
    path: Path, kind: str, keys: RecordKeys, columns: InputColumns, *, with_choices: bool = False
) -> Iterator[TextExample]:
    """Yield the records of a table, one at a time.

    Without names, the columns are those of ``keys``, or ``text``, ``sentence`` or the only one.
    Other columns are copied to the results, except for those that the task writes itself.

    Args:
        path: the file, see ``zoo.data.readers.tables.read_rows``.
        kind: ``csv``, ``tsv`` or ``parquet``.
        keys: keys of the texts in the results.
        columns: names of the columns.
        with_choices: whether each record has choices.

    Raises:
        UsageError: a column is missing or could be any of several, or a row is damaged.
        SourceError: the file cannot be read.
    """
    suffix = SUFFIXES[kind]
    try:
        names = _names(path, suffix, keys, columns, with_choices)
        taken = {*keys.pair, CHOICES, *([keys.text] if keys.text else []), *columns.reserved}
        warned = False
        for row in read_rows(path, names.all, others=True, suffix=suffix):
            record, left_out = _record(row, names, taken)
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
    with tempfile.TemporaryDirectory(prefix="zoo-") as folder:
        path = Path(folder, f"table{SUFFIXES[kind]}")
        with path.open("wb") as copy:
            shutil.copyfileobj(file, copy)
        records = read_table_records(path, kind, *arguments, **options)
        try:
            for record in records:
                location = record.location.replace(str(path), name)
                yield TextExample(record.text, record.pair, record.extra, location)
        except UsageError as error:
            raise UsageError(error.what.replace(str(path), name), error.hint) from error


def _record(row: Row, names: _Names, taken: Collection[str]) -> tuple[TextExample, list[str]]:
    """Return the record of a row, and the names of columns that it cannot have."""
    location, values = row.location, row.values
    read = set(names.all)
    others = {name: value for name, value in values.items() if name not in read}
    extra: dict[str, Any] = {name: value for name, value in others.items() if name not in taken}
    if names.choices:
        cells = [values[name] for name in names.choices]
        extra[CHOICES] = list(parse_choices(cells, f"{location}: {names.choices[0]}")[0])

    def text(name: str) -> str:
        return validate_text(
            require_text(values[name], f"{location}: {name}"), f"{location}: {name}"
        )

    pair = None if names.pair is None or values[names.pair] is None else text(names.pair)
    # dates, decimals and bytes of Parquet as text
    record = TextExample(text(names.text), pair, msgspec.to_builtins(extra), location)
    return record, [name for name in others if name in taken]


def _names(
    path: Path, suffix: str, keys: RecordKeys, columns: InputColumns, with_choices: bool
) -> _Names:
    """Return the columns of the texts of a table.

    Raises:
        UsageError: they are missing, or could be any of several.
    """
    if columns.text is not None and is_number(columns.text):  # a table without a header
        return _Names(columns.text, columns.pair, tuple(columns.choices))
    present = column_names(path, suffix)
    if not present:
        return _Names(columns.text or keys.pair[0], columns.pair, tuple(columns.choices))
    if with_choices:
        return _choice_names(present, keys, columns)
    first, second = keys.pair
    if columns.text is None and columns.pair is None and keys.text is not None:
        if {first, second} <= set(present):
            return _Names(first, second)
        usual = (keys.text, *USUAL)
        found = next((name for name in usual if name in present), None)
        if found is None and len(present) == 1:
            found = present[0]
            LOG.info("%s: the texts are the column %r", path, found)
        if found is None:
            raise _unclear(path, present, "--text")
        return _Names(found)
    text = columns.text or first
    if keys.text is not None and columns.pair is None:
        return _Names(text, second if second in present else None)
    pair = columns.pair or second
    missing = [
        option
        for option, given, name in (("--text", columns.text, text), ("--pair", columns.pair, pair))
        if given is None and name not in present
    ]
    if missing:
        raise _unclear(path, present, " and ".join(missing))
    return _Names(text, pair)


def _choice_names(present: Sequence[str], keys: RecordKeys, columns: InputColumns) -> _Names:
    asked = ChoiceColumns(
        text=columns.text or keys.pair[0], pair=columns.pair, choices=tuple(columns.choices)
    )
    found = resolve_columns(asked, present)
    has_choices = columns.choices or set(found.choices) <= set(present)
    return _Names(found.text, found.pair, found.choices if has_choices else ())


def _unclear(path: Path, present: Sequence[str], options: str) -> UsageError:
    return UsageError(
        f"{path} has the columns {', '.join(present)}, and it is unclear which to read",
        f"name them with {options}",
    )
