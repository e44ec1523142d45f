"""The lock of a run's directory, so that one process at a time trains the run."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

from filelock import FileLock, Timeout

from zoo.errors import UsageError

NAME = ".lock"


@contextlib.contextmanager
def locked(run: Path) -> Iterator[None]:
    """Hold the lock of a run's directory; the system releases it if the process dies.

    Raises:
        UsageError: another process holds the lock.
    """
    lock = FileLock(run / NAME)
    try:
        lock.acquire(blocking=False)
    except Timeout as error:
        raise UsageError(f"another process is at work in {run}", "let it end, or end it") from error
    except NotImplementedError:
        pass  # some network file systems have no locks
    try:
        yield
    finally:
        lock.release()
