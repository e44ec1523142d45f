"""Digests of files, and failures to write as errors of one line."""

import contextlib
import errno
import hashlib
from collections.abc import Iterator
from pathlib import Path

from zoo.checkpoint import FileDigest
from zoo.errors import SourceError, UsageError
from zoo.io.atomic import UNWRITABLE, atomic_write

PIECE = 4 << 20
SHA256_LENGTH = 64


def hash_file(path: Path, etag: str = "") -> tuple[FileDigest, bool]:
    """Hash a file once, with BLAKE3 and with whatever the Hub published its digest in.

    Args:
        path: the file.
        etag: the digest that the Hub publishes, in hexadecimal: a SHA-256 for a large file, the
            SHA-1 of a git blob for one that is kept in git itself; empty for none.

    Returns:
        The digest, and whether the file is what ``etag`` says. The digest holds the SHA-256 only
        where the Hub published one and it is right.
    """
    from blake3 import blake3

    size = path.stat().st_size
    ours, theirs = blake3(max_threads=blake3.AUTO), _hasher(etag, size)
    buffer = memoryview(bytearray(PIECE))
    with path.open("rb", buffering=0) as file:
        while count := file.readinto(buffer):
            ours.update(buffer[:count])
            if etag:
                theirs.update(buffer[:count])
    right = not etag or theirs.hexdigest() == etag
    sha256 = etag if right and len(etag) == SHA256_LENGTH else None
    return FileDigest(bytes=size, blake3=ours.hexdigest(), sha256=sha256), right


def _hasher(etag: str, size: int) -> "hashlib._Hash":
    if len(etag) == SHA256_LENGTH:
        return hashlib.sha256()
    return hashlib.sha1(b"blob %d\0" % size, usedforsecurity=False)


def write_whole(path: Path, content: bytes) -> None:
    """Writes a file; see ``zoo.io.atomic.atomic_write``."""
    atomic_write(path, content)


@contextlib.contextmanager
def writing(where: Path, remedy: str) -> Iterator[None]:
    """Turn a failure of the disk into one line.

    Args:
        where: what is being written, for failures that name no file.
        remedy: what to do where there is no room or no permission.

    Raises:
        UsageError: there is no room, no permission, or something in the way.
        SourceError: the disk failed in another way.
    """
    try:
        yield
    except OSError as error:
        path = error.filename or where
        if error.errno in {*UNWRITABLE, errno.EEXIST, errno.EISDIR}:
            raise UsageError(f"cannot write {path}: {error.strerror}", remedy) from error
        raise SourceError(f"{path}: {error.strerror or error}") from error
