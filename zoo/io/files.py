"""Opening and reading of regular files; pipes, devices and oversized files are refused."""

import contextlib
import os
import stat
from collections.abc import Callable, Collection, Iterator
from io import BufferedReader, FileIO
from pathlib import Path
from typing import Any

from zoo.errors import SourceError, VerificationError
from zoo.io.descriptors import BINARY, CLOEXEC, NOCTTY, NONBLOCK
from zoo.io.local import require_local
from zoo.io.sizes import check_size
from zoo.overrides import override

_observers: list[tuple[frozenset[str], Callable[[int], None]]] = []  # of ``count_reads``
_active_digests: list["ReadDigests"] = []  # What ``hash_reads`` computes at the moment.
_FLAGS = os.O_RDONLY | BINARY | CLOEXEC | NONBLOCK | NOCTTY


def open_regular(path: Path) -> BufferedReader:
    """Open a regular file for reading."""
    # Reading a pipe, a socket or a device may block or never end, so that the type is checked
    # before opening, and again afterwards in case the path was replaced in between
    require_local(path, "file")
    try:
        _check_regular(path, path.stat())
        descriptor = os.open(path, _FLAGS)
        try:
            _check_regular(path, os.fstat(descriptor))
            observed = next((o for o in reversed(_observers) if str(path) in o[0]), None)
            digests = _digests_of(path)
            if observed is None and digests is None:
                return os.fdopen(descriptor, "rb")
            on_read = _ignore if observed is None else observed[1]
            if digests is None:
                return BufferedReader(_CountedFile(descriptor, on_read))
            return BufferedReader(_HashedFile(descriptor, on_read, digests, str(path)))
        except BaseException:
            os.close(descriptor)
            raise
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        raise SourceError(f"{path}: {getattr(error, 'strerror', None) or error}") from error


class _CountedFile(FileIO):
    """File that reports the number of bytes of each read."""

    def __init__(self, descriptor: int, on_read: Callable[[int], None]) -> None:
        super().__init__(descriptor, "rb")
        self._on_read = on_read

    @override
    def readinto(self, buffer: Any, /) -> int:
        count = super().readinto(buffer) or 0
        self._on_read(count)
        return count

    @override
    def readall(self) -> bytes:
        content = super().readall() or b""
        self._on_read(len(content))
        return content


def _ignore(count: int) -> None:
    """Take no notice of the number of bytes of a read."""


class ReadDigests:
    """Digests of files that are computed while the files are read.

    Attributes:
        paths: paths of the files.
        blake3: path -> BLAKE3 of a file that was read from its first to its last byte, in order.
    """

    def __init__(self, paths: Collection[str]) -> None:
        self.paths = frozenset(paths)
        self.blake3: dict[str, str] = {}


class _HashedFile(_CountedFile):
    """File that is hashed as long as it is read in order."""

    def __init__(
        self, descriptor: int, on_read: Callable[[int], None], digests: ReadDigests, path: str
    ) -> None:
        from blake3 import blake3

        super().__init__(descriptor, on_read)
        self._digests = digests
        self._path = path
        self._hasher = blake3()
        self._hashed_bytes = 0

    @override
    def readinto(self, buffer: Any, /) -> int:
        position = self.tell()
        count = super().readinto(buffer)
        self._hash(position, memoryview(buffer)[:count], is_last=not count and len(buffer) > 0)
        return count

    @override
    def readall(self) -> bytes:
        position = self.tell()
        content = super().readall()
        self._hash(position, memoryview(content), is_last=True)
        return content

    def _hash(self, position: int, data: memoryview, *, is_last: bool) -> None:
        """Hash what was read at a position, unless something before it was not read."""
        if position != self._hashed_bytes:
            return
        self._hasher.update(data)
        self._hashed_bytes += len(data)
        if is_last:
            self._digests.blake3[self._path] = self._hasher.hexdigest()


@contextlib.contextmanager
def hash_reads(paths: Collection[str]) -> Iterator[ReadDigests]:
    """Compute the digests of files that are read as streams meanwhile."""
    digests = ReadDigests(paths)
    _active_digests.append(digests)
    try:
        yield digests
    finally:
        _active_digests.remove(digests)


def _digests_of(path: Path) -> ReadDigests | None:
    """Return the digests that a file belongs to, if they are computed at the moment."""
    for digests in reversed(_active_digests):
        if str(path) in digests.paths:
            return digests
    return None


@contextlib.contextmanager
def count_reads(paths: Collection[str], on_read: Callable[[int], None]) -> Iterator[None]:
    """Call a function with the number of bytes of each read of files that are opened meanwhile."""
    observer = (frozenset(paths), on_read)
    _observers.append(observer)
    try:
        yield
    finally:
        _observers.remove(observer)


def is_named_file(path: Path) -> bool:
    """Return whether a name exists that is not a folder's.

    ``Path.is_file`` is false for a link whose target is missing: a reader that asks it skips the
    file. Callers of this function open the file, and ``open_regular`` says what is wrong.
    """
    return os.path.lexists(path) and not path.is_dir()


@contextlib.contextmanager
def reading(path: Path) -> Iterator[None]:
    """Convert errors of the operating system to a ``SourceError`` that names the file."""
    try:
        yield
    except OSError as error:
        raise SourceError(f"{path}: {error.strerror or error}") from error


def read_regular(path: Path, kind: str, limit: int) -> bytes:
    """Return the content of a regular file that is not larger than a limit."""
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        check_size(path, f"size of the {kind} in bytes", size, limit)
        with reading(path):
            content = file.read(size + 1)  # read(n) allocates n bytes, however few there are
    if len(content) > size:
        raise SourceError(f"{path}: it grew while it was read", "try again")
    return content


def decode_text(content: bytes, name: "str | Path") -> str:
    """Decode UTF-8 text, without its byte order mark."""
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise VerificationError(
            f"{name} is not UTF-8: {error.reason} at byte {error.start}"
        ) from error


def _check_regular(path: Path, status: os.stat_result) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise SourceError(f"{path} is not a regular file")
