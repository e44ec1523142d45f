"""File locks between processes."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from zoo.errors import UsageError
from zoo.io.descriptors import CLOEXEC, DIRECTORY, LocksUnavailableError, lock_descriptor

if TYPE_CHECKING:
    from filelock import BaseFileLock


@contextlib.contextmanager
def file_lock(path: Path) -> Iterator[None]:
    """Hold an exclusive lock, which the system releases when the process ends."""
    # The lock file is removed with the lock. This is safe, because a process that waited for it
    # detects that the file was unlinked, and creates it again
    from filelock import FileLock

    path.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(path, is_singleton=False):
        try:
            yield
        finally:
            with contextlib.suppress(OSError):
                os.unlink(path)


def lock_at_once(path: Path, busy: UsageError) -> "BaseFileLock":
    """Acquire an exclusive lock without waiting, and return it; its file stays."""
    # The system releases it when the process ends. Where a file system has no locks, as some
    # network file systems, nothing is locked
    from filelock import FileLock, Timeout

    lock = FileLock(path)
    try:
        lock.acquire(blocking=False)
    except Timeout as error:
        raise busy from error
    except NotImplementedError:
        pass  # raised where there are no locks
    return lock


@contextlib.contextmanager
def directory_lock(path: Path, *, shared: bool = False) -> Iterator[None]:
    """Hold a lock on a directory, without a lock file in it."""
    # A record that several processes change is read, changed and written under this lock. Where a
    # file system has no locks, nothing is locked
    descriptor = lock_directory(path, shared=shared)
    try:
        yield
    finally:
        if descriptor is not None:
            os.close(descriptor)


def lock_directory(path: Path, *, shared: bool = False, wait: bool = True) -> int | None:
    """Lock a directory; return a descriptor that holds the lock, ``None`` if it is not free."""
    # If the directory is replaced meanwhile, the new one is locked.
    while True:
        descriptor = os.open(path, os.O_RDONLY | DIRECTORY | CLOEXEC)
        try:
            lock_descriptor(descriptor, shared=shared, wait=wait)
            if os.path.samestat(os.fstat(descriptor), os.stat(path)):
                return descriptor
        except BlockingIOError:
            os.close(descriptor)
            return None
        except LocksUnavailableError:
            return descriptor
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)
