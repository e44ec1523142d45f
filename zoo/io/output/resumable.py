"""Tables and arrays of results that an interrupted command continues."""

import contextlib
import csv
import errno
import fcntl
import io
import itertools
import json
import logging
import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from zoo.errors import SourceError, UsageError, VerificationError, ZooError
from zoo.io.digests.self_digest import NO_DIGEST, add_digest, read_record
from zoo.io.json import JsonStruct, dump_json, encode_json
from zoo.io.local import require_local
from zoo.io.output.atomic import atomic_write, writing
from zoo.io.output.inside import open_inside
from zoo.io.output.overwrite import check_file
from zoo.io.output.staging import staged_path
from zoo.io.output.tables import (
    PARQUET,
    ROWS_AT_ONCE,
    check_table,
    format_cell,
    json_row,
    require_pyarrow,
)
from zoo.overrides import override
from zoo.version import __version__

if TYPE_CHECKING:
    from numpy.typing import NDArray

LOG = logging.getLogger("zoo")
ARRAY = ".npy"
DELIMITERS = {".csv": ",", ".tsv": "\t"}
SECONDS = 1.0  # between two records of the progress
_NEW = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC

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


def check_output(path: Path, *, force: bool, resume: bool, sources: Iterable[Path] = ()) -> None:
    """Raise an error if results cannot be written to a file, before anything is computed."""
    if path.suffix.lower() == ARRAY:
        check_file(path, force=force, sources=sources)
    else:
        check_table(path, force=force, sources=sources)
    part = part_of(path)
    if os.path.lexists(part) and not (resume or force):
        raise UsageError(
            f"{part} is an interrupted output",
            "--resume continues it, and --force begins again",
        )


def part_of(path: Path) -> Path:
    """Return the file in which an output is written."""
    return path.with_name(f"{path.name}.part")


class ResumableOutput:
    """Rows of results that are being written; see ``resumable_output``. ``rows`` counts them."""

    # Rows are appended to ``NAME.part``. ``NAME.part.json`` records how many of its rows are
    # complete, their digest, and what they depend on. A command that continues drops what follows
    # these rows, and writes what an uninterrupted one would have written, to the byte. At the end,
    # the part becomes the output: JSON lines, CSV, TSV and NumPy arrays by a rename, Parquet from
    # JSON lines.

    def __init__(
        self, part: Path, file: BinaryIO, encoder: "_Encoder", settings: Mapping[str, Any]
    ) -> None:
        from blake3 import blake3

        self.rows = 0
        self._part, self._file, self._encoder = part, file, encoder
        self._settings, self._hasher, self._bytes = dict(settings), blake3(), 0
        self._complete: PartRecord | None = None
        self._recorded = time.monotonic()

    def write(self, row: Row) -> None:
        """Append a row."""
        with writing(self._part):
            data = self._encoder.encode(row, self.rows + 1)
            self._file.write(data)
            self._hasher.update(data)
            self._bytes += len(data)
        self.rows += 1

    def mark(self) -> None:
        """Mark all rows so far as complete; the mark is saved at most once a second."""
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

    def save(self) -> bool:
        """Save the last mark, and return whether there is one."""
        if self._complete is not None:
            with writing(self._part):
                self._file.flush()
                os.fsync(self._file.fileno())
                atomic_write(_record_of(self._part), add_digest(encode_json(self._complete)))
        self._recorded = time.monotonic()
        return self._complete is not None

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
        left = record.bytes
        while left and (data := self._file.read(min(left, 1 << 20))):
            self._hasher.update(data)
            left -= len(data)
        if left or self._hasher.hexdigest() != record.blake3:
            raise VerificationError(
                f"{self._part} was changed after zoo wrote it", "begin again with --force"
            )
        self._file.seek(record.bytes)
        self._file.truncate()
        self.rows, self._bytes = record.rows, record.bytes
        self._encoder.columns, self._complete = record.columns, record
        LOG.info("%s has %s rows: continuing after them", self._part, f"{self.rows:,}")

    def finish(self) -> None:
        """Complete the contents of the part."""
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
) -> Iterator[ResumableOutput]:
    """Yield the output, with the rows that an interrupted command has written."""
    # settings: what the rows depend on; ``None`` if that is unknown, and nothing is kept
    # The file appears when the block ends without an error. The part of an interrupted command is
    # kept; after any other error nothing is left.
    sources = list(sources)
    require_local(path, "output")
    path = Path(os.path.abspath(path))
    check_output(path, force=force, resume=resume, sources=sources)
    part = part_of(path)
    with contextlib.ExitStack() as stack:
        with writing(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            file = stack.enter_context(_open(part, resume=resume))
        encoder = _encoder(path, vector_key, no_vectors)
        output = ResumableOutput(part, file, encoder, settings or {})
        if resume:
            output.restore()
        try:
            yield output
            output.finish()
            with writing(path):
                check_file(path, force=force, sources=sources)
                if path.suffix.lower() == PARQUET:
                    _write_parquet(path, file, vector_key, no_vectors)
                    part.unlink()
                else:
                    os.replace(part, path)
                _record_of(part).unlink(missing_ok=True)
        except BaseException as error:
            # as after Ctrl-C: the same command may end differently
            if (
                settings is not None
                and (not isinstance(error, ZooError) or isinstance(error.__cause__, OSError))
                and output.save()
            ):
                LOG.warning("%s keeps what is complete; --resume continues it", part)
            else:
                part.unlink(missing_ok=True)
                _record_of(part).unlink(missing_ok=True)
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
    with os.fdopen(descriptor, "r+b") as file:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UsageError(f"{part} is being written by another process", "wait for it") from None
        except OSError as error:
            if error.errno not in (errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS):
                raise
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
        raise UsageError(f"{path} is a link", "begin again with --force")
    return read_record(path, PartRecord, hint="begin again with --force")


class _Encoder:
    """Bytes of rows in a part: JSON lines."""

    def __init__(self, path: Path) -> None:
        self.path, self.columns = path, list[str]()

    def encode(self, row: Row, number: int) -> bytes:
        return json_row(row)

    def finish(self, file: BinaryIO, rows: int) -> None:
        """Write what depends on the number of rows."""


class _Delimited(_Encoder):
    @override
    def encode(self, row: Row, number: int) -> bytes:
        text = io.StringIO(newline="")
        delimiter = DELIMITERS[self.path.suffix.lower()]
        rows = csv.writer(text, delimiter=delimiter, lineterminator="\n")
        if not self.columns:
            self.columns = list(row)
            rows.writerow(self.columns)
        if more := [name for name in row if name not in self.columns]:
            raise UsageError(
                f"row {number} has the column {more[0]!r}, which the first row lacks",
                "write .jsonl",
            )
        rows.writerow([format_cell(row.get(name)) for name in self.columns])
        return text.getvalue().encode(errors="backslashreplace")


class _Array(_Encoder):
    """Rows of a NumPy array: a header, which ``finish`` writes again, and numbers."""

    def __init__(self, path: Path, key: str, none: "NDArray[Any]") -> None:
        super().__init__(path)
        self._key, self._shape, self._dtype = key, none.shape[1:], none.dtype

    @override
    def encode(self, row: Row, number: int) -> bytes:
        vector: NDArray[Any] = row[self._key]
        if number == 1:
            self._shape, self._dtype = vector.shape, vector.dtype
            self.columns = [vector.dtype.str, *map(str, vector.shape)]
            return self._header(0) + vector.tobytes()
        return vector.tobytes()

    @override
    def finish(self, file: BinaryIO, rows: int) -> None:
        import numpy as np

        if self.columns:  # of the first row, which another process may have written
            self._dtype, self._shape = np.dtype(self.columns[0]), tuple(map(int, self.columns[1:]))
        file.seek(0)
        file.write(self._header(rows))

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


def _encoder(path: Path, vector_key: str | None, no_vectors: "NDArray[Any] | None") -> _Encoder:
    suffix = path.suffix.lower()
    if suffix == ARRAY:
        assert vector_key is not None and no_vectors is not None, "checked by the caller"
        return _Array(path, vector_key, no_vectors)
    return _Delimited(path) if suffix in DELIMITERS else _Encoder(path)


def _write_parquet(
    path: Path, file: BinaryIO, vector_key: str | None, no_vectors: "NDArray[Any] | None"
) -> None:
    """Write JSON lines as Parquet; a column of values of several types is JSON."""
    pyarrow: Any = require_pyarrow(path)
    types: dict[str, Any] = {}
    for rows in _row_groups(file):
        for name in dict.fromkeys(name for row in rows for name in row):
            values = [row.get(name) for row in rows]
            types[name] = _common_type(pyarrow, values, types.get(name, pyarrow.null()))
    if vector_key in types and no_vectors is not None:
        types[vector_key] = pyarrow.list_(pyarrow.from_numpy_dtype(no_vectors.dtype))
    empty = {name for name, kind in types.items() if kind == pyarrow.null()}
    mixed = {name for name, kind in types.items() if kind is None}
    types |= dict.fromkeys(empty | mixed, pyarrow.string())
    schema = pyarrow.schema(list(types.items()))
    with staged_path(path) as staging:
        with pyarrow.parquet.ParquetWriter(str(staging), schema) as writer:
            for rows in _row_groups(file):
                columns = {name: [row.get(name) for row in rows] for name in types}
                for name in mixed:
                    columns[name] = [None if v is None else dump_json(v) for v in columns[name]]
                writer.write_table(pyarrow.table(columns, schema=schema))
        with staging.open("rb") as written:
            os.fsync(written.fileno())
        os.replace(staging, path)


def _common_type(pyarrow: Any, values: Sequence[Any], before: Any) -> Any:
    """Return the type of values, and of those before; ``None`` if they have several types."""
    if before is None:
        return None
    try:
        types = [pyarrow.schema([("", kind)]) for kind in (before, pyarrow.array(values).type)]
        return pyarrow.unify_schemas(types, promote_options="permissive").field(0).type
    except pyarrow.ArrowException:
        return None


def _row_groups(file: BinaryIO) -> Iterator[list[dict[str, Any]]]:
    """Yield the rows of JSON lines, so many at once."""
    file.seek(0)
    while lines := list(itertools.islice(file, ROWS_AT_ONCE)):
        yield [json.loads(line) for line in lines]
