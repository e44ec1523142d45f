"""Parquet from JSON lines: the types of all rows are known before the first one is written."""

import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from zoo.errors import SourceError
from zoo.io.json import dump_json

if TYPE_CHECKING:
    from numpy.typing import NDArray

ROWS_AT_ONCE = 4096  # of a row group


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


def write_parquet(
    path: Path,
    lines: BinaryIO,
    target: BinaryIO,
    fixed_types: Mapping[str, Any] | None = None,
    metadata: Mapping[bytes, bytes] | None = None,
) -> None:
    """Write rows of JSON lines to an open file; ``path`` is its name in messages."""
    # A column that Parquet has no type for is text: values of several types, integers over 64 bits,
    # and numbers that would lose digits are JSON. ``fixed_types`` are types of some columns.
    pyarrow: Any = require_pyarrow(path)
    types, mixed = _column_types(pyarrow, lines, fixed_types or {})
    schema = pyarrow.schema(list(types.items()), metadata=metadata)
    with pyarrow.parquet.ParquetWriter(target, schema) as writer:
        for rows in _row_groups(lines):
            columns = [
                _array(pyarrow, _values(rows, name, as_json=name in mixed), column_type)
                for name, column_type in types.items()
            ]
            writer.write_table(pyarrow.table(columns, schema=schema))


def vector_type(pyarrow: Any, lines: BinaryIO, name: str, empty: "NDArray[Any]") -> Any:
    """Return the type of a column of vectors: lists of a fixed size, which databases search.

    Late interaction has a list of such vectors for each text. Without a type, such as for the
    weights of words, it is ``None``.

    Args:
        pyarrow: the module.
        lines: rows of JSON lines.
        name: the column.
        empty: the vectors of no texts, (0, dimensions).
    """
    number_type = pyarrow.from_numpy_dtype(empty.dtype)
    lines.seek(0)
    for line in lines:
        value = json.loads(line).get(name)
        if not isinstance(value, list):
            return None
        if not value:  # A text without tokens.
            continue
        if isinstance(value[0], list):
            return pyarrow.list_(pyarrow.list_(number_type, len(value[0])))
        return pyarrow.list_(number_type, len(value))
    return pyarrow.list_(number_type, *empty.shape[1:])


def _column_types(
    pyarrow: Any, lines: BinaryIO, fixed_types: Mapping[str, Any]
) -> tuple[dict[str, Any], set[str]]:
    """Return the type of each column, and the columns whose values are written as JSON."""
    types: dict[str, Any] = {}
    changed = set[str]()
    mixed = set[str]()
    for rows in _row_groups(lines):
        for name in dict.fromkeys(name for row in rows for name in row):
            before = types.get(name, pyarrow.null())
            types[name] = _common_type(pyarrow, _values(rows, name), before)
            if before != pyarrow.null() and types[name] != before:
                changed.add(name)
    for name in types.keys() & fixed_types.keys():
        types[name] = fixed_types[name]
    mixed.update(name for name, column_type in types.items() if column_type is None)
    # A wider type may not hold all values of the first rows, such as 2**53 + 1 among fractions.
    for rows in _row_groups(lines) if changed - mixed else ():
        for name in changed - mixed:
            try:
                _array(pyarrow, _values(rows, name), types[name])
            except (pyarrow.ArrowException, OverflowError):
                mixed.add(name)
    for name, column_type in types.items():
        if name in mixed or column_type == pyarrow.null():
            types[name] = pyarrow.string()
    return types, mixed


def _values(rows: Sequence[Mapping[str, Any]], name: str, *, as_json: bool = False) -> list[Any]:
    values = [row.get(name) for row in rows]
    if as_json:
        return [None if value is None else dump_json(value) for value in values]
    return values


def _common_type(pyarrow: Any, values: Sequence[Any], before: Any) -> Any:
    """Return the type of values, and of those before; ``None`` if there is none."""
    if before is None:
        return None
    try:
        types = [before, _array(pyarrow, values).type]
        schemas = [pyarrow.schema([("", column_type)]) for column_type in types]
        return pyarrow.unify_schemas(schemas, promote_options="permissive").field(0).type
    except (pyarrow.ArrowException, OverflowError):
        return None


def _array(pyarrow: Any, values: Sequence[Any], column_type: Any = None) -> Any:
    try:
        return pyarrow.array(values, column_type)
    except UnicodeEncodeError:  # half of a surrogate pair, which is escaped as in CSV
        return pyarrow.array(list(map(_escaped, values)), column_type)


def _escaped(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode(errors="backslashreplace").decode()
    if isinstance(value, list):
        return list(map(_escaped, value))
    if isinstance(value, dict):
        return {_escaped(key): _escaped(item) for key, item in value.items()}
    return value


def _row_groups(lines: BinaryIO) -> Iterator[list[dict[str, Any]]]:
    """Yield the rows of JSON lines, so many at once."""
    lines.seek(0)
    while group := list(itertools.islice(lines, ROWS_AT_ONCE)):
        yield [json.loads(line) for line in group]
