"""Locks between processes."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def file_lock(path: Path) -> Iterator[None]:
    """Hold a lock that the system takes back when the process ends, however it ends.

    The lock file is removed with the lock. That is safe: who waited for it finds that the file has
    no name any more, and makes it again.

    Args:
        path: the lock file, which holds nothing; its folder is made.

    Raises:
        OSError: it cannot be written.
    """
    from filelock import FileLock

    path.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(path, is_singleton=False):
        try:
            yield
        finally:
            with contextlib.suppress(OSError):
                os.unlink(path)
