"""File locks between processes."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from zoo.errors import UsageError

if TYPE_CHECKING:
    from filelock import BaseFileLock


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


def lock_at_once(path: Path, busy: UsageError) -> "BaseFileLock":
    """Acquire an exclusive lock without waiting, and return it; its file stays.

    The system releases it when the process ends. Where a file system has no locks, as some network
    file systems, nothing is locked.

    Args:
        path: path of the lock file, which is empty.
        busy: error to raise if another process holds the lock.

    Raises:
        UsageError: ``busy``.
        OSError: the lock file cannot be written.
    """
    from filelock import FileLock, Timeout

    lock = FileLock(path)
    try:
        lock.acquire(blocking=False)
    except Timeout as error:
        raise busy from error
    except NotImplementedError:
        pass  # raised where there are no locks
    return lock
