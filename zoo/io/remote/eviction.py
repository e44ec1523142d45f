"""Removal of copies of remote files that were not used for the longest time."""

import contextlib
import logging
import os
from collections.abc import Iterator
from pathlib import Path

from zoo.errors import UsageError
from zoo.io.locks import lock_directory
from zoo.io.numbers import int_from_environment
from zoo.io.output.staging import discard, remove_stale_staging

LOG = logging.getLogger("zoo")
VARIABLE = "ZOO_MAX_DOWNLOADS_GB"
DEFAULT_GB = 100
RECORD = ".json"  # ending of the record of a copy, next to it


def max_download_bytes() -> int:
    """Return how many bytes of copies are kept that no process uses."""
    gigabytes = int_from_environment(VARIABLE, DEFAULT_GB)
    if gigabytes < 0:
        raise UsageError(f"{VARIABLE} is {gigabytes}", f"unset {VARIABLE}, or give 0 or more")
    return gigabytes * 10**9


def evict_downloads(folder: Path, copies: Path, limit: int) -> None:
    """Remove the least recently used copies, until the others have no more than some bytes.

    What a process reads or fetches stays, whatever its size.

    Args:
        folder: directory of the copies and of the snapshots, which have links to them.
        copies: directory of the copies.
        limit: number of bytes.
    """
    with contextlib.suppress(OSError):  # A shared home may be read-only.
        size = _bytes(folder)
        if size <= limit:
            return
        descriptor = lock_directory(copies, wait=False)
        if descriptor is None:
            return  # Another process fetches files, and removes others when it has them.
        try:
            size -= _remove_unlinked(copies, size - limit)
            for snapshot in _snapshots(folder, copies):
                if size <= limit:
                    break
                size -= _remove_snapshot(snapshot, copies)
        finally:
            os.close(descriptor)


def _bytes(folder: Path) -> int:
    """Return the size of all files of a directory, each counted once for all its links."""
    sizes = {}
    for parent, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):
                status = os.lstat(os.path.join(parent, name))
                sizes[status.st_dev, status.st_ino] = status.st_size
    return sum(sizes.values())


def _snapshots(folder: Path, copies: Path) -> Iterator[Path]:
    """Yield the snapshots of all hosts, the least recently used ones first."""
    times = {}
    for host in folder.iterdir():
        if host == copies or not host.is_dir():
            continue
        remove_stale_staging(host)
        for snapshot in host.iterdir():
            if snapshot.is_dir() and not snapshot.name.startswith("."):
                times[snapshot] = snapshot.stat().st_mtime_ns
    yield from sorted(times, key=times.__getitem__)


def _remove_snapshot(snapshot: Path, copies: Path) -> int:
    """Remove a snapshot that no process reads, and its copies; return the number of bytes."""
    descriptor = lock_directory(snapshot, wait=False)
    if descriptor is None:
        return 0
    try:
        size = _bytes(snapshot)
        linked_bytes = 0
        for parent, _, names in os.walk(snapshot):
            for name in names:
                status = os.lstat(os.path.join(parent, name))
                if status.st_nlink > 1:
                    linked_bytes += status.st_size
        LOG.info("removing %s from the downloads, to free %s bytes", snapshot, f"{size:,}")
        discard(snapshot)
    finally:
        os.close(descriptor)
    return size - linked_bytes + _remove_unlinked(copies, size)


def _remove_unlinked(copies: Path, size: int) -> int:
    """Remove copies without a snapshot, the oldest first, until a number of bytes is free.

    Where the file system has no links, snapshots have files of their own, and no copy is linked.
    """
    times = {}
    for record in copies.glob(f"*{RECORD}"):
        copy = record.with_name(record.name.removesuffix(RECORD))
        if copy.is_file() and copy.stat().st_nlink == 1:
            times[copy] = record.stat().st_mtime_ns
    removed_bytes = 0
    for copy in sorted(times, key=times.__getitem__):
        if removed_bytes >= size:
            break
        removed_bytes += copy.stat().st_size
        copy.with_name(f"{copy.name}{RECORD}").unlink()
        copy.unlink()
    return removed_bytes
