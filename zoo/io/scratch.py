"""Temporary files, with a message that names their directory where it is full."""

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from zoo.errors import UsageError
from zoo.io.output.full_disks import NOTHING_LEFT, cause_on_disk


@contextlib.contextmanager
def scratch_directory(inside: Path | None = None, *, is_only_folder: bool = True) -> Iterator[Path]:
    """Yield a temporary directory, which is removed when the block ends.

    Args:
        inside: an output's staging directory, where errors are those of the output; by default the
            system's directory of temporary files, ``$TMPDIR``.
        is_only_folder: whether the block writes nowhere else; see ``cause_on_disk``.
    """
    if inside is None:
        with writing_scratch():
            made = tempfile.TemporaryDirectory(prefix="zoo-")
    else:
        made = tempfile.TemporaryDirectory(prefix=".scratch-", dir=inside)
    with made as name:
        try:
            yield Path(name)
        except BaseException as error:
            cause = cause_on_disk(error, Path(name), is_only_folder=is_only_folder)
            if cause is None:
                raise
            if inside is not None:
                raise OSError(cause.errno, cause.strerror, name) from error
            raise _no_room(cause) from cause


def scratch_file() -> IO[bytes]:
    """Return a temporary file without a name; write to it within ``writing_scratch``."""
    with writing_scratch():
        return tempfile.TemporaryFile(prefix="zoo-")


def memory_file() -> IO[bytes]:
    """Return a file without a name for a few bytes, in memory where the system has such files."""
    if hasattr(os, "memfd_create"):
        return os.fdopen(os.memfd_create("zoo"), "w+b")
    return scratch_file()


@contextlib.contextmanager
def writing_scratch() -> Iterator[None]:
    """Convert errors of a block that only writes temporary files."""
    try:
        yield
    except OSError as error:
        raise _no_room(error) from error


def _no_room(error: OSError) -> UsageError:
    try:
        folder = tempfile.gettempdir()
    except OSError:  # none can be written
        folder = "$TMPDIR"
    return UsageError(
        f"cannot write temporary files in {folder}: {error.strerror or error}",
        f"{NOTHING_LEFT}; make room, or set TMPDIR to a directory of another disk",
    )
