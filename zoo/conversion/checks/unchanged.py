"""Detection of files that change while they are converted."""

import contextlib
import os
import stat
from collections.abc import Iterable
from pathlib import Path

from zoo.errors import VerificationError

FileState = tuple[int, ...]


class FileStates:
    """States of the files of directories at one moment."""

    # A file is unchanged if its inode, size, modification time and change time are. The change time
    # is set by the kernel on every write and cannot be set by a program.

    def __init__(self, directories: Iterable[Path]) -> None:
        self._states: dict[Path, FileState] = {}
        for directory in directories:
            for path in (*directory.glob("*"), *directory.glob("*/*.json")):
                with contextlib.suppress(OSError):  # removed meanwhile, or unreadable
                    self._states[path] = _state(path)

    def check(self, paths: Iterable[Path]) -> None:
        """Check that files did not change."""
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
    place = (status.st_dev, status.st_ino)
    if not stat.S_ISREG(status.st_mode):
        return place
    return (*place, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
