"""A teacher's outputs on disk: records with the digest of a row's inputs as key, append-only."""

import contextlib
import mmap
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from blake3 import blake3
from numpy.typing import NDArray

from zoo.errors import UsageError, VerificationError
from zoo.io.descriptors import lock_descriptor, unlock_descriptor
from zoo.io.digests.self_digest import NO_DIGEST, add_digest, parse_record
from zoo.io.json import JsonStruct, encode_json
from zoo.io.limits import MAX_STATE_BYTES
from zoo.io.output.atomic import atomic_write
from zoo.io.output.inside import files_inside, open_inside, read_inside
from zoo.io.output.overwrite import check_not_inside
from zoo.io.output.staging import is_staged, remove_stale_staging

BLOCK_BYTES = 1 << 22  # records are held in memory until they reach this size
KEY_BYTES = 16
SIZE_BYTES = 4
COUNT_BYTES = 8
DIGEST_BYTES = 16
RECENT = 1 << 16  # records in the dictionary of the index before its arrays are sorted again

_FILE = re.compile(r"outputs-[0-9]+\.(bin|json|lock)")  # versions before 0.3 had a lock file

Bytes = NDArray[np.uint8]


class CacheHeader(JsonStruct, kw_only=True):
    """Header of a cache: all that outputs depend on, apart from the inputs."""

    teacher: dict[str, str]  # name -> BLAKE3; see ``Teacher.fingerprint``
    dtype: str  # of the teacher's computation
    backend: str  # of the teacher
    outputs: list[str]
    top_k: int  # number of logits per position; equal to ``classes`` if none are left out
    classes: int
    temperatures: list[float]  # at which the probability of the other classes is known


class CacheManifest(JsonStruct, kw_only=True):
    """``outputs-RANK.json``."""

    header: CacheHeader
    complete: int  # number of bytes of ``outputs-RANK.bin`` in complete blocks
    digest: str  # BLAKE3 of this file; see ``zoo.io.digests.self_digest``


class TeacherCache:
    """The records of one rank."""

    # A cache is a directory with two files per rank. ``outputs-RANK.bin`` has blocks of records,
    # which are only ever appended; ``outputs-RANK.json`` names the teacher and the number of
    # complete bytes of the first file. It is replaced after each block, so that a process may be
    # killed at any moment: bytes beyond the complete ones are cut off. A rank only reads its own
    # file, so that what it finds does not depend on the speed of other ranks.
    #
    # Directories with other files are refused, and no file is opened through a link.
    #
    # A block has the number of its bytes, their BLAKE3 digest, and the bytes; a record has its key,
    # the number of its bytes, and the bytes. Numbers are little-endian.

    # They are read through a memory map. The index has 16 bytes for each of them.
    def __init__(self, directory: Path, header: CacheHeader) -> None:
        self.directory = directory
        self.header = header
        self.added = 0
        self._file: int | None = None

    @property
    def remedy(self) -> str:
        """Hint in errors about a cache that cannot be used."""
        return f"delete {self.directory}, or give another directory"

    def open(self, rank: int) -> None:
        """Lock, verify and index the records of a rank, unless the cache is open."""
        if self._file is not None:
            return
        with self._writing():
            self._require_own()
            for name in sorted(files_inside(self.directory)):
                if name.endswith(".json"):
                    self._require_same_header(name)
            self._data = self.directory / f"outputs-{rank}.bin"
            self._manifest = self.directory / f"outputs-{rank}.json"
            self.directory.mkdir(parents=True, exist_ok=True)
            if not self._manifest.exists():  # written first: a file without it is not ours
                self._write_manifest(0)
            if self._read_manifest(self._manifest.name).complete and not self._data.exists():
                raise VerificationError(f"{self._data} is missing", self.remedy)
            file = open_inside(self.directory, self._data.name, os.O_RDWR | os.O_CREAT)
            try:
                self._lock(file)
                self._file = file
                self._read()
            except BaseException:
                self._release(file)
                raise

    def _require_own(self) -> None:
        """Check that the directory is new, empty, or a cache."""
        check_not_inside(self.directory / "outputs")
        remove_stale_staging(self.directory)  # left by a killed process
        present = {name for name in files_inside(self.directory) if not is_staged(name)}
        foreign = {name for name in present if not _FILE.fullmatch(name)}
        foreign |= {name for name in present if f"{name.rpartition('.')[0]}.json" not in present}
        if foreign:
            raise UsageError(
                f"{self.directory} holds {min(foreign)}, which is not part of a cache",
                "give another directory",
            )

    def _lock(self, file: int) -> None:
        try:
            lock_descriptor(file, wait=False)
        except BlockingIOError as error:
            raise UsageError(
                f"another process writes the cache in {self.directory}",
                "let it end, or give another directory",
            ) from error
        except OSError:  # a file system without locks
            pass

    def _release(self, file: int) -> None:
        # its maps may still be read: they hold a copy of the descriptor
        with contextlib.suppress(OSError):  # a file system without locks
            unlock_descriptor(file)
        os.close(file)
        self._file = None

    def _require_same_header(self, name: str) -> None:
        """Check that a file has outputs of this teacher; the error names the first difference."""
        header = self._read_manifest(name).header
        for field in CacheHeader.__struct_fields__:
            before = getattr(header, field)
            now = getattr(self.header, field)
            if before != now:
                what = (
                    "from another teacher"
                    if field == "teacher"
                    else f"for {field} {_text(before)}, not {_text(now)}"
                )
                raise UsageError(f"the cache in {self.directory} is {what}", self.remedy)

    def _read_manifest(self, name: str) -> CacheManifest:
        content = read_inside(self.directory, name, "record of a cache", MAX_STATE_BYTES)
        try:
            path = self.directory / name
            return parse_record(content, path, CacheManifest, hint=self.remedy)
        except VerificationError as error:
            raise VerificationError(error.what, self.remedy) from error

    def _write_manifest(self, complete: int) -> None:
        manifest = CacheManifest(header=self.header, complete=complete, digest=NO_DIGEST)
        atomic_write(self._manifest, add_digest(encode_json(manifest)))

    def _read(self) -> None:
        """Index the complete blocks, and cut off all bytes after them."""
        assert self._file is not None, "open calls it"
        complete = self._read_manifest(self._manifest.name).complete
        size = os.fstat(self._file).st_size
        if size < complete:
            raise VerificationError(
                f"{self._data} is truncated: it has {size:,} of {complete:,} bytes", self.remedy
            )
        os.ftruncate(self._file, complete)
        self._index = _Index()
        self._pending = dict[bytes, bytes]()
        self._bytes = 0
        self._map_file(complete)
        for start, end in self._blocks():
            for key, at in self._records(start, end):
                self._index.add(key, at)

    def _map_file(self, size: int) -> None:
        self._complete = size
        self._map: Bytes = np.zeros(0, np.uint8)
        if size and self._file is not None:
            content = mmap.mmap(self._file, size, access=mmap.ACCESS_READ)
            self._map = np.frombuffer(content, np.uint8)

    def _blocks(self) -> Iterator[tuple[int, int]]:
        """Yield the start and end of the records in each block, after checking its digest."""
        at = 0
        while at < self._complete:
            start = at + COUNT_BYTES + DIGEST_BYTES
            end = start + self._number(at, COUNT_BYTES)
            digest = self._map[at + COUNT_BYTES : start].tobytes()
            if end > self._complete or _digest(self._map[start:end]) != digest:
                raise VerificationError(f"{self._data} is damaged at byte {at:,}", self.remedy)
            yield start, end
            at = end

    def _records(self, start: int, end: int) -> Iterator[tuple[bytes, int]]:
        """Yield the key and the position of each record."""
        at = start
        while at < end:
            yield self._map[at : at + KEY_BYTES].tobytes(), at
            at += KEY_BYTES + SIZE_BYTES + self._number(at + KEY_BYTES, SIZE_BYTES)
        if at != end:
            raise VerificationError(f"{self._data} is damaged at byte {end:,}", self.remedy)

    def _number(self, at: int, size: int) -> int:
        return int.from_bytes(self._map[at : at + size].tobytes(), "little")

    def get(self, key: bytes) -> Bytes | None:
        """Return the record of a key, or ``None``."""
        pending = self._pending.get(key)
        if pending is not None:
            return np.frombuffer(pending, np.uint8)
        at = self._index.get(key)
        if at is None or self._map[at : at + KEY_BYTES].tobytes() != key:
            return None
        start = at + KEY_BYTES + SIZE_BYTES
        return self._map[start : start + self._number(at + KEY_BYTES, SIZE_BYTES)]

    def add(self, key: bytes, record: Bytes) -> None:
        """Add a record, unless the cache has its key."""
        if self.get(key) is not None:
            return
        self.added += 1
        self._pending[key] = record.tobytes()
        self._bytes += KEY_BYTES + SIZE_BYTES + record.nbytes
        if self._bytes >= BLOCK_BYTES:
            self.flush()

    def flush(self) -> None:
        """Write the records in memory as a block."""
        if self._file is None or not self._pending:
            return
        records = b"".join(
            key + len(data).to_bytes(SIZE_BYTES, "little") + data
            for key, data in self._pending.items()
        )
        block = len(records).to_bytes(COUNT_BYTES, "little") + _digest(records) + records
        with self._writing():
            view = memoryview(block)
            at = self._complete
            while view:  # the system may write a part
                written = os.pwrite(self._file, view, at)
                view = view[written:]
                at = at + written
            os.fsync(self._file)
            self._write_manifest(self._complete + len(block))
        start = self._complete + COUNT_BYTES + DIGEST_BYTES
        self._map_file(self._complete + len(block))
        for key, at in self._records(start, self._complete):
            self._index.add(key, at)
        self._pending = {}
        self._bytes = 0

    def close(self) -> None:
        """Write the records in memory, and release the lock."""
        if self._file is None:
            return
        try:
            self.flush()
        finally:
            self._release(self._file)

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise UsageError(
                f"cannot write the cache in {self.directory}: {error.strerror}",
                "give another directory",
            ) from error


class _Index:
    """Positions of records by the first 8 bytes of their keys, in sorted arrays."""

    def __init__(self) -> None:
        self._keys = np.zeros(0, np.uint64)
        self._positions = np.zeros(0, np.int64)
        self._recent: dict[int, int] = {}

    def get(self, key: bytes) -> int | None:
        number = int.from_bytes(key[:8], "little")
        if number in self._recent:
            return self._recent[number]
        place = int(self._keys.searchsorted(np.uint64(number)))
        if place == len(self._keys) or int(self._keys[place]) != number:
            return None
        return int(self._positions[place])

    def add(self, key: bytes, position: int) -> None:
        self._recent[int.from_bytes(key[:8], "little")] = position
        if len(self._recent) == RECENT:
            keys = np.concatenate([self._keys, np.fromiter(self._recent, np.uint64)])
            positions = np.concatenate(
                [self._positions, np.fromiter(self._recent.values(), np.int64)]
            )
            order = keys.argsort(kind="stable")
            self._keys = keys[order]
            self._positions = positions[order]
            self._recent = {}


def _digest(content: Any) -> bytes:
    return blake3(content).digest(DIGEST_BYTES)


def _text(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
