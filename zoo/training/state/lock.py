"""The lock of a run's directory, so that one process at a time trains the run."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

from zoo.errors import UsageError
from zoo.io.locks import lock_at_once

NAME = ".lock"


@contextlib.contextmanager
def locked(run: Path) -> Iterator[None]:
    """Hold the lock of a run's directory; the system releases it if the process dies."""
    busy = UsageError(f"another process is at work in {run}", "let it end, or end it")
    lock = lock_at_once(run / NAME, busy)
    try:
        yield
    finally:
        lock.release()
