"""Digests of files that need not be read again: a cache in ``$ZOO_HOME/verified``."""

import contextlib
import os
import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from zoo.errors import SourceError, VerificationError
from zoo.io.digests.files import hash_stream
from zoo.io.files import open_regular, reading
from zoo.io.paths import home

FOLDER = "verified"
# A write within one tick of the file system's clock does not change the times. Digests of files
# that changed shortly before they were hashed are therefore not cached; network file systems and
# FAT have ticks of up to two seconds.
SETTLED_NS = 3_000_000_000
MAX_ENTRIES = 4096  # the cache is emptied when it is full, since all entries can be recomputed


class _Entry(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    """Digest of a file, and the state of the file when it was hashed."""

    device: int
    inode: int
    size: int
    mtime_ns: int
    ctime_ns: int
    blake3: str

    @classmethod
    def of(cls, status: os.stat_result, digest: str) -> "_Entry":
        times = status.st_mtime_ns, status.st_ctime_ns
        return cls(status.st_dev, status.st_ino, status.st_size, *times, digest)

    @property
    def name(self) -> str:
        """File name of the entry, one for each inode."""
        return f"{self.device:x}-{self.inode:x}"


# Digests that this process has just computed, by the names of their entries, for each
# ``reuse_digests`` that is open.
_computed_entries: list[dict[str, _Entry]] = []


@contextlib.contextmanager
def reuse_digests(hashed: Iterable[tuple[os.stat_result, str]]) -> Iterator[None]:
    """Let ``file_blake3`` return digests that this process has just computed.

    They count as long as the files have the given states, and are not stored: whoever opens the
    files later reads them.
    """
    entries = [_Entry.of(status, digest) for status, digest in hashed]
    by_name = {entry.name: entry for entry in entries}
    _computed_entries.append(by_name)
    try:
        yield
    finally:
        _computed_entries.remove(by_name)


def file_blake3(path: Path) -> str:
    """Return the BLAKE3 digest of a file, from the cache if the file did not change."""
    # An entry has the digest of a file with its device, inode, size, modification time and change
    # time; as long as these five are equal, the file is not read again. The kernel sets the change
    # time on every write through the file system, and programs cannot set it.
    #
    # Changes below the file system are not detected: a disk that returns other bytes than were
    # written, or writes to the device. ``zoo verify`` reads every byte.
    with open_regular(path) as file, reading(path):
        before = os.fstat(file.fileno())
        if digest := _cached(before):
            return digest
        digest = hash_stream(file, all_cores=True).blake3
        after = os.fstat(file.fileno())
    entry = _Entry.of(before, digest)
    if entry != _Entry.of(after, digest):
        raise SourceError(f"{path} changes while it is read", "try again when it is finished")
    if time.time_ns() - before.st_ctime_ns > SETTLED_NS:
        _store(entry)
    return digest


def require_blake3(path: Path, expected: str | None, manifest: Path) -> None:
    """Raise an error unless a file has the digest that its manifest lists."""
    if expected is None or file_blake3(path) != expected:
        raise VerificationError(
            f"{path} is not the file that {manifest} describes",
            "it was changed or is damaged: make it again, and see `zoo verify`",
        )


def _cached(status: os.stat_result) -> str | None:
    key = _Entry.of(status, "")
    for entries in _computed_entries:
        entry = entries.get(key.name)
        if entry is not None and entry == _Entry.of(status, entry.blake3):
            return entry.blake3
    try:
        entry = msgspec.json.decode((home() / FOLDER / key.name).read_bytes(), type=_Entry)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return None
    return entry.blake3 if entry == _Entry.of(status, entry.blake3) else None


def _store(entry: _Entry) -> None:
    """Store an entry. If the directory cannot be written, the file is hashed again next time."""
    folder = home() / FOLDER
    with contextlib.suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
        entries = os.listdir(folder)
        for name in entries if len(entries) >= MAX_ENTRIES else ():
            with contextlib.suppress(FileNotFoundError):  # another process removes them as well
                os.unlink(folder / name)
        descriptor, name = tempfile.mkstemp(prefix=".", dir=folder)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(msgspec.json.encode(entry))
            os.replace(name, folder / entry.name)
        except OSError:
            os.unlink(name)
