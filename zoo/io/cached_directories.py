"""Directories of a cache: the least recently used ones are evicted, unless a process reads them."""

import contextlib
import os
import time
from pathlib import Path

from zoo.io.locks import lock_directory
from zoo.io.output.staging import discard, remove_stale_staging

MAX_CACHED = 16  # directories in a cache
# Cached directory that this process reads -> its shared lock.
_IN_USE: dict[Path, int] = {}


def use_cached(directory: Path) -> bool:
    """Keep other processes from evicting a cached directory that this process reads."""
    if directory not in _IN_USE:
        try:
            descriptor = lock_directory(directory, shared=True)
        except FileNotFoundError:
            return False
        if descriptor is not None:
            _IN_USE[directory] = descriptor
    return directory.is_dir()


def touch_and_evict(directory: Path) -> None:
    """Update the time of last use of a cached directory, and evict the least recently used ones."""
    # The ``MAX_CACHED`` most recently used siblings are not removed, including the directory
    # itself, and neither are those that another process reads, see ``use_cached``
    with contextlib.suppress(OSError):  # a shared home may be read-only
        paths = [path for path in directory.parent.iterdir() if path.is_dir()]
        times = {p: p.stat().st_mtime_ns for p in paths if not p.name.startswith(".")}
        # if the clock was set back, this directory must not become the oldest
        now = max([time.time_ns(), *(used + 1 for used in times.values())])
        os.utime(directory, ns=(now, now))
        for path in sorted(times.keys() - {directory}, key=times.__getitem__)[: 1 - MAX_CACHED]:
            if path in _IN_USE:
                os.close(_IN_USE.pop(path))
            if (descriptor := lock_directory(path, wait=False)) is not None:
                try:
                    discard(path)
                finally:
                    os.close(descriptor)
        remove_stale_staging(directory.parent)
