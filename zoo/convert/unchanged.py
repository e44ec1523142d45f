"""Showing that files did not change while they were converted."""

import contextlib
import os
import stat
from collections.abc import Iterable
from pathlib import Path

from zoo.errors import VerificationError

FileState = tuple[int, ...]


class FileStates:
    """The states of the files of directories at one moment.

    A file is what it was if inode, size, and times of modification and change are. The last is
    set by every write, to a value that no program can choose.

    Args:
        directories: where the files are, or in folders one level below.
    """

    def __init__(self, directories: Iterable[Path]) -> None:
        self._states: dict[Path, FileState] = {}
        for directory in directories:
            for path in (*directory.glob("*"), *directory.glob("*/*.json")):
                with contextlib.suppress(OSError):  # it may be gone again, or be unreadable
                    self._states[path] = _state(path)

    def check(self, paths: Iterable[Path]) -> None:
        """Check that files are what they were.

        Raises:
            VerificationError: names the first that is not.
        """
        for path in paths:
            try:
                unchanged = self._states.get(path, state := _state(path)) == state
            except OSError:
                unchanged = False
            if not unchanged:
                raise VerificationError(
                    f"{path} was changed while it was converted", "try again when it is complete"
                )


def _state(path: Path) -> FileState:
    status = os.stat(path)
    if not stat.S_ISREG(status.st_mode):
        return (status.st_dev, status.st_ino)
    return (
        status.st_dev,
        status.st_ino,
        status.st_size,
        status.st_mtime_ns,
        status.st_ctime_ns,
    )
