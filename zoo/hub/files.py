"""Digests of downloaded files, and conversion of errors of the operating system."""

import contextlib
import errno
import hashlib
from collections.abc import Iterator
from pathlib import Path

from zoo.errors import SourceError, UsageError
from zoo.io.digests.files import FileDigest
from zoo.io.output.full_disks import UNWRITABLE

PIECE = 4 << 20
SHA256_LENGTH = 64


class Hasher:
    """Incremental BLAKE3 digest of a file, with the digest that the Hub publishes."""

    def __init__(self, etag: str, size: int) -> None:
        from blake3 import blake3

        self._etag = etag
        self._blake3 = blake3(max_threads=blake3.AUTO)
        if len(etag) == SHA256_LENGTH:
            self._published = hashlib.sha256()
        else:
            self._published = hashlib.sha1(b"blob %d\0" % size, usedforsecurity=False)

    def update(self, chunk: "bytes | memoryview") -> None:
        """Hash the next part of the contents."""
        self._blake3.update(chunk)
        if self._etag:
            self._published.update(chunk)

    def result(self, size: int) -> tuple[FileDigest, bool]:
        """Return the digest, and ``True`` if the contents match the digest of the Hub."""
        # The result has a SHA-256 only if the Hub publishes one and it matches
        matches = not self._etag or self._published.hexdigest() == self._etag
        sha256 = self._etag if matches and len(self._etag) == SHA256_LENGTH else None
        return FileDigest(bytes=size, blake3=self._blake3.hexdigest(), sha256=sha256), matches


def hash_download(path: Path, etag: str = "") -> tuple[FileDigest, bool]:
    """Return the digest of a file, and ``True`` if it matches the digest of the Hub."""
    size = path.stat().st_size
    hasher = Hasher(etag, size)
    buffer = memoryview(bytearray(PIECE))
    with path.open("rb", buffering=0) as file:
        while count := file.readinto(buffer):
            hasher.update(buffer[:count])
    return hasher.result(size)


@contextlib.contextmanager
def map_os_errors(path: Path, hint: str) -> Iterator[None]:
    """Convert errors of the operating system to one-line errors."""
    try:
        yield
    except OSError as error:
        name = error.filename or path
        if error.errno in {*UNWRITABLE, errno.EEXIST, errno.EISDIR}:
            raise UsageError(f"cannot write {name}: {error.strerror}", hint) from error
        raise SourceError(f"{name}: {error.strerror or error}") from error
