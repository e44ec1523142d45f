"""File locks between processes."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def file_lock(path: Path) -> Iterator[None]:
    """Hold an exclusive lock, which the system releases when the process ends.

    The lock file is removed with the lock. This is safe, because a process that waited for it
    detects that the file was unlinked, and creates it again.

    Args:
        path: path of the lock file, which is empty. Its directory is created.

    Raises:
        OSError: the lock file cannot be written.
    """
    from filelock import FileLock

    path.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(path, is_singleton=False):
        try:
            yield
        finally:
            with contextlib.suppress(OSError):
                os.unlink(path)
