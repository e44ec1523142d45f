"""Files within a directory, opened without following a link out of it."""

import errno
import os
import stat
from collections.abc import Iterator
from io import BufferedReader
from pathlib import Path

from zoo.errors import SourceError
from zoo.io.descriptors import BINARY, CLOEXEC, DIRECTORY, NOCTTY, NOFOLLOW, NONBLOCK
from zoo.io.paths import safe_join
from zoo.io.sizes import check_size

_FLAGS = BINARY | NOFOLLOW | CLOEXEC | NONBLOCK | NOCTTY
_LINK = {errno.ELOOP, errno.EMLINK, errno.ENOTDIR}  # what systems answer for a link


def open_inside(directory: Path, name: str, flags: int = os.O_RDONLY) -> int:
    """Open a regular file of a directory and return its descriptor."""
    # A directory that a command reads or writes again, such as a cache, may have been changed in
    # between: a file in it can be a link to another one. The path of the directory itself may
    # contain links.
    #
    # A file to write must have a single name: a hard link may belong to another directory
    path = safe_join(directory, name, str(directory))
    *folders, last = path.relative_to(directory).parts
    parent = os.open(directory, os.O_RDONLY | DIRECTORY | CLOEXEC)
    try:
        for folder in folders:
            inner = os.open(folder, os.O_RDONLY | DIRECTORY | _FLAGS, dir_fd=parent)
            os.close(parent)
            parent = inner
        descriptor = os.open(last, flags | _FLAGS, 0o666, dir_fd=parent)
    except OSError as error:
        if error.errno in _LINK:
            raise SourceError(f"{path} leads through a link", "replace it by the file") from error
        raise OSError(error.errno, error.strerror, str(path)) from error
    finally:
        os.close(parent)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise SourceError(f"{path} is not a regular file")
        if flags & (os.O_WRONLY | os.O_RDWR) and status.st_nlink > 1:
            raise SourceError(f"{path} has a second name (a hard link)", "replace it by a copy")
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def reader_inside(directory: Path, name: str) -> BufferedReader:
    """Open a file of a directory for reading; see ``open_inside``."""
    return os.fdopen(open_inside(directory, name), "rb")


def read_inside(directory: Path, name: str, kind: str, limit: int) -> bytes:
    """Return the content of a file of a directory, of at most ``limit`` bytes."""
    with reader_inside(directory, name) as file:
        size = os.fstat(file.fileno()).st_size
        check_size(directory / name, f"size of the {kind} in bytes", size, limit)
        return file.read(size)


def files_inside(directory: Path) -> Iterator[str]:
    """Yield the names of all files below a directory, links to directories included."""
    for folder, directories, names in os.walk(directory):
        links = [name for name in directories if Path(folder, name).is_symlink()]
        for name in (*names, *links):
            yield Path(folder, name).relative_to(directory).as_posix()
