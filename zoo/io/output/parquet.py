"""Parquet from stored rows: the types of all rows are known before the first one is written.

Rows are stored as JSON lines, or in Arrow's stream format with JSON next to the vectors.
"""

import itertools
import json
import mmap
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from zoo.errors import SourceError
from zoo.io.json import dump_json

if TYPE_CHECKING:
    from numpy.typing import NDArray

ROWS_AT_ONCE = 4096  # of a row group
STREAM_COLUMNS = ("row", "vector")


@dataclass(frozen=True)
class RowGroup:
    """Rows of a Parquet file that are written together.

    Attributes:
        rows: values of the columns.
        arrays: columns that are Arrow arrays already; the rows have ``None`` in their place.
    """

    rows: Sequence[Mapping[str, Any]]
    arrays: Mapping[str, Any] = field(default_factory=dict)

    def values(self, name: str) -> list[Any]:
        """Return the values of a column."""
        return [row.get(name) for row in self.rows]


RowGroups = Callable[[], Iterator[RowGroup]]  # Reads all groups, from the first one on.


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
    groups: RowGroups,
    target: BinaryIO,
    fixed_types: Mapping[str, Any] | None = None,
    metadata: Mapping[bytes, bytes] | None = None,
) -> None:
    """Write rows to an open file; ``path`` is its name in messages."""
    # A column that Parquet has no type for is text: values of several types, integers over 64 bits,
    # and numbers that would lose digits are JSON. ``fixed_types`` are types of some columns.
    pyarrow: Any = require_pyarrow(path)
    types, mixed = _column_types(pyarrow, groups, fixed_types or {})
    schema = pyarrow.schema(list(types.items()), metadata=metadata)
    with pyarrow.parquet.ParquetWriter(target, schema) as writer:
        for group in groups():
            columns = []
            for name, column_type in types.items():
                if name in group.arrays:
                    columns.append(group.arrays[name])
                    continue
                values = group.values(name)
                if name in mixed:
                    values = _as_json(values)
                columns.append(_array(pyarrow, values, column_type))
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


class VectorStream:
    """Rows in Arrow's stream format: JSON of a row next to its vector, or its vectors.

    The stream has no end mark, so that more batches can be appended.

    Args:
        pyarrow: the module.
        name: the column of vectors.
        empty: the vectors of no texts, (0, dimensions).
    """

    def __init__(self, pyarrow: Any, name: str, empty: "NDArray[Any]") -> None:
        self._pyarrow = pyarrow
        self._name = name
        self._dtype = empty.dtype
        self.width = int(empty.shape[1])
        self.is_nested = False  # whether a row has several vectors

    def start(self, vector: "NDArray[Any]") -> bytes:
        """Take the shape of the first vector, and return the beginning of the stream."""
        self.width = int(vector.shape[-1])
        self.is_nested = vector.ndim > 1
        return self.header()

    @property
    def vector_type(self) -> Any:
        """Type of the column of vectors."""
        number_type = self._pyarrow.from_numpy_dtype(self._dtype)
        column_type = self._pyarrow.list_(number_type, self.width)
        return self._pyarrow.list_(column_type) if self.is_nested else column_type

    def header(self) -> bytes:
        """Return the beginning of the stream: its schema."""
        return bytes(self._schema().serialize())

    def encode(self, rows: Sequence[bytes], vectors: "Sequence[NDArray[Any]]") -> bytes:
        """Return a batch of rows.

        Args:
            rows: JSON of each row, with null in place of its vector.
            vectors: the vector of each row, (dimensions,) or (tokens, dimensions).
        """
        import numpy as np

        pyarrow = self._pyarrow
        numbers = np.concatenate([vector.reshape(-1) for vector in vectors])
        flat = pyarrow.array(numbers.astype(self._dtype, copy=False))
        column = pyarrow.FixedSizeListArray.from_arrays(flat, self.width)
        if self.is_nested:
            offsets = np.cumsum([0, *map(len, vectors)], dtype=np.int32)
            column = pyarrow.ListArray.from_arrays(offsets, column)
        batch = pyarrow.record_batch(
            [pyarrow.array(rows, pyarrow.binary()), column], schema=self._schema()
        )
        return bytes(batch.serialize())

    def groups(self, file: BinaryIO) -> Iterator[RowGroup]:
        """Yield the rows of a stream, which ends with the file."""
        pyarrow = self._pyarrow
        table = None
        for batch in self._batches(file, os.fstat(file.fileno()).st_size):
            batches = [batch] if table is None else [*table.to_batches(), batch]
            table = pyarrow.Table.from_batches(batches)
            while table.num_rows >= ROWS_AT_ONCE:
                yield self._group(table.slice(0, ROWS_AT_ONCE))
                table = table.slice(ROWS_AT_ONCE)
        if table is not None and table.num_rows:
            yield self._group(table)

    def count_rows(self, file: BinaryIO, size: int) -> int:
        """Return the number of rows in the first bytes of a file.

        Raises:
            ValueError: they are not a stream of these vectors.
        """
        return sum(batch.num_rows for batch in self._batches(file, size))

    def _schema(self) -> Any:
        row_name, vector_name = STREAM_COLUMNS
        fields = [(row_name, self._pyarrow.binary()), (vector_name, self.vector_type)]
        return self._pyarrow.schema(fields)

    def _batches(self, file: BinaryIO, size: int) -> Iterator[Any]:
        pyarrow = self._pyarrow
        if not size:
            return
        content = mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ)
        try:
            with pyarrow.ipc.open_stream(pyarrow.py_buffer(content)) as reader:
                if reader.schema != self._schema():
                    raise ValueError("another shape or dtype")
                yield from reader
        except pyarrow.ArrowException as error:
            raise ValueError(str(error)) from error

    def _group(self, table: Any) -> RowGroup:
        row_name, vector_name = STREAM_COLUMNS
        rows = [json.loads(row) for row in table.column(row_name).to_pylist()]
        column = table.column(vector_name).combine_chunks()
        return RowGroup(rows, {self._name: column})


def _column_types(
    pyarrow: Any, groups: RowGroups, fixed_types: Mapping[str, Any]
) -> tuple[dict[str, Any], set[str]]:
    """Return the type of each column, and the columns whose values are written as JSON."""
    types: dict[str, Any] = {}
    changed = set[str]()
    mixed = set[str]()
    for group in groups():
        for name in dict.fromkeys(name for row in group.rows for name in row):
            before = types.get(name, pyarrow.null())
            types[name] = _common_type(pyarrow, group.values(name), before)
            if before != pyarrow.null() and types[name] != before:
                changed.add(name)
    for name in types.keys() & fixed_types.keys():
        types[name] = fixed_types[name]
    mixed.update(name for name, column_type in types.items() if column_type is None)
    # A wider type may not hold all values of the first rows, such as 2**53 + 1 among fractions.
    for group in groups() if changed - mixed else ():
        for name in changed - mixed:
            try:
                _array(pyarrow, group.values(name), types[name])
            except (pyarrow.ArrowException, OverflowError):
                mixed.add(name)
    for name, column_type in types.items():
        if name in mixed or column_type == pyarrow.null():
            types[name] = pyarrow.string()
    return types, mixed


def _as_json(values: Sequence[Any]) -> list[str | None]:
    return [None if value is None else dump_json(value) for value in values]


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


def json_groups(lines: BinaryIO) -> Iterator[RowGroup]:
    """Yield the rows of JSON lines in groups."""
    lines.seek(0)
    while group := list(itertools.islice(lines, ROWS_AT_ONCE)):
        yield RowGroup([json.loads(line) for line in group])
