"""Opening and reading of regular files; pipes, devices and oversized files are refused."""

import os
import stat
from io import BufferedReader
from pathlib import Path

from zoo.errors import SourceError, VerificationError
from zoo.io.limits import check_limit

_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY


def open_regular(path: Path) -> BufferedReader:
    """Open a regular file for reading."""
    # Reading a pipe, a socket or a device may block or never end, so that the type is checked
    # before opening, and again afterwards in case the path was replaced in between
    try:
        _check_regular(path, path.stat())
        descriptor = os.open(path, _FLAGS)
        try:
            _check_regular(path, os.fstat(descriptor))
            return os.fdopen(descriptor, "rb")
        except BaseException:
            os.close(descriptor)
            raise
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        raise SourceError(f"{path}: {getattr(error, 'strerror', None) or error}") from error


def read_regular(path: Path, kind: str, limit: int) -> bytes:
    """Return the content of a regular file that is not larger than a limit."""
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        check_limit(path, f"size of the {kind} in bytes", size, limit)
        try:
            content = file.read(size + 1)  # read(n) allocates n bytes, however few there are
        except OSError as error:
            raise SourceError(f"{path}: {error.strerror}") from error
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
