"""Tables and arrays of results that an interrupted command continues."""

import contextlib
import csv
import io
import logging
import math
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from zoo.errors import SourceError, UsageError, VerificationError, ZooError
from zoo.io.descriptors import (
    BINARY,
    CLOEXEC,
    NOFOLLOW,
    LocksUnavailableError,
    lock_descriptor,
)
from zoo.io.digests.self_digest import NO_DIGEST, add_digest, read_record
from zoo.io.json import JsonStruct, encode_json
from zoo.io.local import require_local
from zoo.io.output.atomic import atomic_write
from zoo.io.output.full_disks import NO_ROOM, close_quietly, writing
from zoo.io.output.inside import open_inside
from zoo.io.output.overwrite import check_file
from zoo.io.output.parquet import (
    RowGroup,
    VectorStream,
    json_groups,
    require_pyarrow,
    vector_type,
    write_parquet,
)
from zoo.io.output.staging import parent_directories, staged_path
from zoo.io.output.tables import (
    DELIMITERS,
    PARQUET,
    RowEncoder,
    check_table,
    json_row,
    require_cells,
)
from zoo.io.output.vectors import ARRAY, METADATA_KEY, record_of
from zoo.overrides import override
from zoo.version import __version__

if TYPE_CHECKING:
    from numpy.typing import NDArray

LOG = logging.getLogger("zoo")
BEGIN_AGAIN = "begin again with --force"
READ_BYTES = 1 << 20
SECONDS = 1.0  # between two records of the progress
_NEW = os.O_RDWR | os.O_CREAT | os.O_EXCL | BINARY | NOFOLLOW | CLOEXEC

Row = Mapping[str, Any]


class PartRecord(JsonStruct):
    """Contents of ``NAME.part.json``."""

    zoo: int  # version of the format
    created_by: str
    settings: dict[str, Any]  # what the rows depend on
    rows: int
    bytes: int  # length of the rows in the part; what follows is dropped
    blake3: str  # digest of these bytes
    columns: list[str]
    digest: str


def check_output(
    path: Path,
    *,
    force: bool,
    resume: bool,
    sources: Iterable[Path] = (),
    excel_safe: bool = False,
) -> None:
    """Raise an error if results cannot be written to a file, before anything is computed."""
    if path.suffix.lower() == ARRAY:
        require_cells(path, excel_safe=excel_safe)
        check_file(path, force=force, sources=sources)
        check_file(record_of(path), force=force, sources=sources)
    else:
        check_table(path, force=force, sources=sources, excel_safe=excel_safe)
    part = part_of(path)
    if os.path.lexists(part) and not (resume or force):
        raise UsageError(
            f"{part} is an interrupted output",
            "--resume continues it, and --force begins again",
        )


def part_of(path: Path) -> Path:
    """Return the file in which an output is written."""
    return path.with_name(f"{path.name}.part")


def discard_output(path: Path) -> None:
    """Remove an output, what an interrupted command wrote of it, and their records.

    Raises:
        UsageError: another process is writing the output.
    """
    part = part_of(path)
    if os.path.lexists(part):
        with _open(part, resume=True):
            part.unlink()
    paths = [_record_of(part), path]
    if path.suffix.lower() == ARRAY:
        paths.append(record_of(path))
    for output_path in paths:
        output_path.unlink(missing_ok=True)


class ResumableOutput:
    """Rows of results that are being written; see ``resumable_output``. ``rows`` counts them."""

    # Rows are appended to ``NAME.part``. ``NAME.part.json`` records how many of its rows are
    # complete, their digest, and what they depend on. A command that continues drops what follows
    # these rows, and writes what an uninterrupted one would have written, to the byte. At the end,
    # the part becomes the output: JSON lines, CSV, TSV and NumPy arrays by a rename, Parquet from
    # JSON lines, or from a stream of Arrow if it has vectors.

    def __init__(
        self, part: Path, file: BinaryIO, encoder: "_Encoder", settings: Mapping[str, Any]
    ) -> None:
        from blake3 import blake3

        self.rows = 0
        self._part = part
        self._file = file
        self._encoder = encoder
        self._settings = dict(settings)
        self._hasher = blake3()
        self._bytes = 0
        self._complete: PartRecord | None = None
        self.saved_rows: int | None = None  # of the record on the disk
        self._recorded = time.monotonic()

    def write(self, row: Row) -> None:
        """Append a row."""
        self._append(self._encoder.encode(row, self.rows + 1))
        self.rows += 1

    def _append(self, data: bytes) -> None:
        with writing(self._part):
            self._file.write(data)
        self._hasher.update(data)
        self._bytes += len(data)

    def mark(self) -> None:
        """Mark all rows so far as complete; the mark is saved at most once a second."""
        self._append(self._encoder.flush())
        self._complete = PartRecord(
            zoo=1,
            created_by=__version__,
            settings=self._settings,
            rows=self.rows,
            bytes=self._bytes,
            blake3=self._hasher.hexdigest(),
            columns=self._encoder.columns,
            digest=NO_DIGEST,
        )
        if time.monotonic() - self._recorded >= SECONDS:
            self.save()

    def save(self) -> None:
        """Save the last mark, if there is one."""
        if self._complete is not None:
            with writing(self._part):
                self._file.flush()
                os.fsync(self._file.fileno())
                atomic_write(_record_of(self._part), add_digest(encode_json(self._complete)))
            self.saved_rows = self._complete.rows
        self._recorded = time.monotonic()

    def restore(self) -> None:
        """Continue after the rows that are recorded."""
        record = _read_record(self._part)
        if record is None:
            self._file.truncate(0)
            return
        changed = [
            name
            for name in {**self._settings, **record.settings}
            if self._settings.get(name) != record.settings.get(name)
        ]
        if changed:
            raise UsageError(
                f"{self._part} was written with different {changed[0]}",
                "run the command that was interrupted, or begin again with --force",
            )
        size = 0
        for data in _first_bytes(self._file, record.bytes):
            self._hasher.update(data)
            size += len(data)
        if size != record.bytes or self._hasher.hexdigest() != record.blake3:
            raise VerificationError(f"{self._part} was changed after zoo wrote it", BEGIN_AGAIN)
        self._encoder.columns = record.columns
        self._require_rows(record)
        self._file.seek(record.bytes)
        self._file.truncate()
        self.rows = record.rows
        self._bytes = record.bytes
        self._complete = record
        self.saved_rows = record.rows
        LOG.info("%s has %s rows: continuing after them", self._part, f"{self.rows:,}")

    def _require_rows(self, record: PartRecord) -> None:
        """Check that the part has the rows and columns of its record, which anyone may edit."""
        try:
            rows = self._encoder.count_rows(self._file, record.bytes)
        except ValueError as error:
            raise VerificationError(
                f"{self._part} does not have the columns of its record ({error})", BEGIN_AGAIN
            ) from error
        if rows != record.rows:
            raise VerificationError(
                f"{self._part} has {rows:,} rows, and its record says {record.rows:,}", BEGIN_AGAIN
            )

    def finish(self) -> None:
        """Complete the contents of the part."""
        self._append(self._encoder.flush())
        with writing(self._part):
            self._encoder.finish(self._file, self.rows)
            self._file.flush()
            os.fsync(self._file.fileno())


@contextlib.contextmanager
def resumable_output(
    path: Path,
    settings: Mapping[str, Any] | None,
    *,
    resume: bool = False,
    force: bool = False,
    sources: Iterable[Path] = (),
    vector_key: str | None = None,
    no_vectors: "NDArray[Any] | None" = None,
    excel_safe: bool = False,
    has_arrays: bool = False,
    vector_record: Callable[[int], bytes | None] | None = None,
) -> Iterator[ResumableOutput]:
    """Yield the output, with the rows that an interrupted command has written."""
    # settings: what the rows depend on; ``None`` if that is unknown, and nothing is kept
    # has_arrays: whether rows have the vector as a NumPy array, which ``.npy`` always needs
    # vector_record: returns what a file of so many vectors records about itself
    # The file appears when the block ends without an error. The part of an interrupted command is
    # kept; after any other error nothing is left.
    sources = list(sources)
    require_local(path, "output")
    path = Path(os.path.abspath(path))
    check_output(path, force=force, resume=resume, sources=sources, excel_safe=excel_safe)
    part = part_of(path)
    with contextlib.ExitStack() as stack:
        with writing(path):
            stack.enter_context(parent_directories(path))
            file = stack.enter_context(_open(part, resume=resume))
        encoder = _encoder(path, vector_key, no_vectors, excel_safe, has_arrays)
        output = ResumableOutput(part, file, encoder, settings or {})
        if resume:
            output.restore()
        try:
            yield output
            output.finish()
            with writing(path):
                check_file(path, force=force, sources=sources)
                content = None
                if vector_record is not None:
                    content = vector_record(output.rows)
                if path.suffix.lower() == PARQUET:
                    groups = partial(encoder.groups, file)
                    fixed_types = encoder.fixed_types(file)
                    _write_parquet(path, groups, fixed_types, content)
                    part.unlink()
                else:
                    # Without a record, the array is of unknown origin: never of another one.
                    record_path = record_of(path)
                    if path.suffix.lower() == ARRAY:
                        record_path.unlink(missing_ok=True)
                    os.replace(part, path)
                    if path.suffix.lower() == ARRAY and content is not None:
                        atomic_write(record_path, content)
                _record_of(part).unlink(missing_ok=True)
        except BaseException as error:
            cause = error.__cause__
            may_differ = not isinstance(error, ZooError) or isinstance(cause, OSError)
            if settings is not None and may_differ:
                # As after Ctrl-C: the same command may end differently. A full disk may have no
                # room for another record; then the last one is valid.
                with contextlib.suppress(OSError, ZooError):
                    output.save()
            else:
                output.saved_rows = None
            if output.saved_rows is None:
                part.unlink(missing_ok=True)
                _record_of(part).unlink(missing_ok=True)
                raise
            rows = f"{part} keeps {output.saved_rows:,} complete rows"
            if isinstance(error, UsageError) and isinstance(cause, OSError):
                advice = "make room" if cause.errno in NO_ROOM else "correct that"
                hint = f"{rows}; {advice}, and --resume continues after them"
                raise UsageError(error.what, hint) from cause
            LOG.warning("%s; --resume continues it", rows)
            raise


@contextlib.contextmanager
def _open(part: Path, *, resume: bool) -> Iterator[BinaryIO]:
    """Open and lock a part; a former one is emptied, unless it is continued."""
    with contextlib.suppress(FileExistsError):
        os.close(os.open(part, _NEW, 0o666))
    try:
        descriptor = open_inside(part.parent, part.name, os.O_RDWR)
    except SourceError as error:
        raise UsageError(error.what, error.hint or "remove it") from error
    with contextlib.ExitStack() as stack:
        file = os.fdopen(descriptor, "r+b")
        stack.callback(close_quietly, file)
        try:
            lock_descriptor(descriptor, wait=False)
        except BlockingIOError:
            raise UsageError(f"{part} is being written by another process", "wait for it") from None
        except LocksUnavailableError:
            pass
        if not resume:
            file.truncate(0)
            _record_of(part).unlink(missing_ok=True)
        yield file


def _record_of(part: Path) -> Path:
    return part.with_name(f"{part.name}.json")


def _read_record(part: Path) -> PartRecord | None:
    """Return the record of a part; ``None`` if nothing is complete."""
    path = _record_of(part)
    if not os.path.lexists(path):
        return None
    if path.is_symlink():
        raise UsageError(f"{path} is a link", BEGIN_AGAIN)
    return read_record(path, PartRecord, hint=BEGIN_AGAIN)


class _Encoder:
    """Bytes of rows in a part: JSON lines."""

    def __init__(
        self, vector_key: str | None = None, no_vectors: "NDArray[Any] | None" = None
    ) -> None:
        self.columns = list[str]()
        self._vector_key = vector_key
        self._no_vectors = no_vectors

    def encode(self, row: Row, number: int) -> bytes:
        """Return the bytes of a row; ``flush`` may return them later."""
        return json_row(row)

    def flush(self) -> bytes:
        """Return the bytes of rows that ``encode`` has not returned."""
        return b""

    def groups(self, file: BinaryIO) -> Iterator[RowGroup]:
        """Yield the rows of a part in the groups of a Parquet file."""
        return json_groups(file)

    def fixed_types(self, file: BinaryIO) -> dict[str, Any]:
        """Return the types of columns of a Parquet file that do not follow from its values."""
        if self._vector_key is None or self._no_vectors is None:
            return {}
        pyarrow: Any = require_pyarrow(Path(PARQUET))
        column_type = vector_type(pyarrow, file, self._vector_key, self._no_vectors)
        return {} if column_type is None else {self._vector_key: column_type}

    def count_rows(self, file: BinaryIO, size: int) -> int:
        """Return the number of rows in the first bytes of a part.

        Raises:
            ValueError: the columns are not those of the part.
        """
        return sum(data.count(b"\n") for data in _first_bytes(file, size))

    def finish(self, file: BinaryIO, rows: int) -> None:
        """Write what depends on the number of rows."""


class _Delimited(_Encoder):
    def __init__(self, path: Path, *, excel_safe: bool) -> None:
        super().__init__()
        self._encode_cells = RowEncoder(path, excel_safe=excel_safe)
        self._delimiter = DELIMITERS[path.suffix.lower()]

    @override
    def encode(self, row: Row, number: int) -> bytes:
        header = b""
        if not self.columns:
            self.columns = list(row)
            header = self._encode_cells(self.columns)
        if more := [name for name in row if name not in self.columns]:
            raise UsageError(
                f"row {number} has the column {more[0]!r}, which the first row lacks",
                "write .jsonl",
            )
        return header + self._encode_cells([row.get(name) for name in self.columns])

    @override
    def count_rows(self, file: BinaryIO, size: int) -> int:
        header = self._encode_cells(self.columns) if self.columns else b""
        file.seek(0)
        if file.read(len(header)) != header:
            raise ValueError("other columns")
        texts = _lines(file, size - len(header))
        csv.field_size_limit(sys.maxsize)
        try:
            return sum(1 for _ in csv.reader(texts, delimiter=self._delimiter, strict=True))
        except csv.Error as error:
            raise ValueError(str(error)) from error


class _Array(_Encoder):
    """Rows of a NumPy array: a header, which ``finish`` writes again, and numbers."""

    def __init__(self, key: str, none: "NDArray[Any]") -> None:
        super().__init__()
        self._key = key
        self._shape = none.shape[1:]
        self._dtype = none.dtype

    @override
    def encode(self, row: Row, number: int) -> bytes:
        vector: NDArray[Any] = row[self._key]
        if number == 1:
            self._shape = vector.shape
            self._dtype = vector.dtype
            self.columns = [vector.dtype.str, *map(str, vector.shape)]
            return self._header(0) + vector.tobytes()
        return vector.tobytes()

    @override
    def count_rows(self, file: BinaryIO, size: int) -> int:
        if not self.columns:
            return size  # which is 0
        self._read_columns()
        row_bytes = self._dtype.itemsize * math.prod(self._shape)
        header = self._header(0)
        rows, remainder = divmod(size - len(header), row_bytes)
        file.seek(0)
        if file.read(len(header)) != header or remainder:
            raise ValueError("another shape or dtype")
        return rows

    @override
    def finish(self, file: BinaryIO, rows: int) -> None:
        if self.columns:
            self._read_columns()
        file.seek(0)
        file.write(self._header(rows))

    def _read_columns(self) -> None:
        """Take dtype and shape of the first row, which another process may have written."""
        import numpy as np

        try:
            dtype, *shape = self.columns
            self._dtype = np.dtype(dtype)
            self._shape = tuple(map(int, shape))
        except TypeError as error:
            raise ValueError(str(error)) from error
        if self._dtype.kind not in "iuf" or min(self._shape, default=1) < 1:
            raise ValueError("another shape or dtype")

    def _header(self, rows: int) -> bytes:
        """Return a header; its length does not depend on the number of rows."""
        import numpy as np

        buffer = io.BytesIO()
        value = {
            "descr": np.lib.format.dtype_to_descr(self._dtype),
            "fortran_order": False,
            "shape": (rows, *self._shape),
        }
        np.lib.format.write_array_header_1_0(buffer, value)
        return buffer.getvalue()


class _VectorTable(_Encoder):
    """Rows of a Parquet file with vectors: a stream of Arrow, with a batch for each chunk."""

    # A vector of 384 float32 numbers takes 1.5 KB, and 4 KB as JSON, which is also slow to parse.

    def __init__(self, path: Path, vector_key: str, no_vectors: "NDArray[Any]") -> None:
        super().__init__(vector_key, no_vectors)
        self._key = vector_key
        self._stream = VectorStream(require_pyarrow(path), vector_key, no_vectors)
        self._rows: list[bytes] = []
        self._vectors: list[NDArray[Any]] = []

    @override
    def encode(self, row: Row, number: int) -> bytes:
        vector: NDArray[Any] = row[self._key]
        self._vectors.append(vector)
        self._rows.append(json_row({**row, self._key: None}))
        if number > 1:
            return b""
        header = self._stream.start(vector)
        self.columns = ["arrow", str(self._stream.width), str(vector.ndim)]
        return header

    @override
    def flush(self) -> bytes:
        if not self._rows:
            return b""
        data = self._stream.encode(self._rows, self._vectors)
        self._rows = []
        self._vectors = []
        return data

    @override
    def count_rows(self, file: BinaryIO, size: int) -> int:
        self._read_columns(size)
        return self._stream.count_rows(file, size)

    @override
    def groups(self, file: BinaryIO) -> Iterator[RowGroup]:
        return self._stream.groups(file)

    @override
    def fixed_types(self, file: BinaryIO) -> dict[str, Any]:
        return {self._key: self._stream.vector_type}

    def _read_columns(self, size: int) -> None:
        """Take the shape of the first vector, which another process may have written."""
        if not self.columns and not size:
            return
        if len(self.columns) != 3 or self.columns[0] != "arrow":
            raise ValueError("rows of another version")
        self._stream.width = int(self.columns[1])
        self._stream.is_nested = int(self.columns[2]) > 1


def _encoder(
    path: Path,
    vector_key: str | None,
    no_vectors: "NDArray[Any] | None",
    excel_safe: bool,
    has_arrays: bool,
) -> _Encoder:
    suffix = path.suffix.lower()
    if suffix == ARRAY:
        assert vector_key is not None and no_vectors is not None, "checked by the caller"
        return _Array(vector_key, no_vectors)
    if suffix == PARQUET and has_arrays:
        assert vector_key is not None and no_vectors is not None, "checked by the caller"
        return _VectorTable(path, vector_key, no_vectors)
    if suffix in DELIMITERS:
        return _Delimited(path, excel_safe=excel_safe)
    return _Encoder(vector_key, no_vectors)


def _first_bytes(file: BinaryIO, size: int) -> Iterator[bytes]:
    """Yield the first bytes of a file in pieces."""
    file.seek(0)
    while size > 0 and (data := file.read(min(size, READ_BYTES))):
        yield data
        size -= len(data)


def _lines(file: BinaryIO, size: int) -> Iterator[str]:
    """Yield the lines in the next bytes of a file."""
    while size > 0 and (line := file.readline(size)):
        yield line.decode()
        size -= len(line)


def _write_parquet(
    path: Path,
    groups: Callable[[], Iterator[RowGroup]],
    fixed_types: Mapping[str, Any],
    vector_record: bytes | None,
) -> None:
    metadata = None
    if vector_record is not None:
        metadata = {METADATA_KEY: vector_record}
    with staged_path(path) as staging:
        with staging.open("xb") as target:
            write_parquet(path, groups, target, fixed_types, metadata)
            target.flush()
            os.fsync(target.fileno())
        os.replace(staging, path)
