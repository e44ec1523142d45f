"""Digests of files that are computed while the files are written."""

import contextlib
import os
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from threading import Event
from typing import BinaryIO

# Imported here, in the main thread: an import that a signal interrupts does not release its
# lock, and the next thread that imports the module would wait forever.
import blake3  # noqa: F401

from zoo.io.digests.files import FileDigest, hash_file
from zoo.io.digests.verified import reuse_digests


class BackgroundHasher:
    """Background threads that compute digests of files and flush files to disk."""

    def __init__(self) -> None:
        self._hashing = ThreadPoolExecutor(1)
        self._syncing = ThreadPoolExecutor(1)
        self._jobs: dict[Path, Future[FileDigest]] = {}
        self._syncs: list[Future[None]] = []
        self._written: dict[Path, os.stat_result] = {}  # States after the last byte.

    def start(self, path: Path) -> None:
        """Start hashing a file, unless ``create`` opened it."""
        if path not in self._jobs:
            self._jobs[path] = self._hashing.submit(hash_file, path)

    @contextlib.contextmanager
    def create(self, path: Path) -> Iterator[BinaryIO]:
        """Open a new file for appending, and hash it while it is written."""
        finished = Event()
        try:
            with path.open("wb") as file:
                self._jobs[path] = self._hashing.submit(hash_file, path, finished)
                yield file
                file.flush()
                self._written[path] = os.fstat(file.fileno())
        finally:
            finished.set()

    def sync(self, path: Path) -> None:
        """Start flushing a file to disk."""

        def flush() -> None:
            with path.open("rb") as file:
                os.fsync(file.fileno())

        self._syncs.append(self._syncing.submit(flush))

    def collect(self, paths: Iterable[Path], directory: Path) -> dict[str, FileDigest]:
        """Wait for the digests of files; return them by path relative to a directory."""
        return {str(path.relative_to(directory)): self._jobs[path].result() for path in paths}

    @contextlib.contextmanager
    def reuse(self) -> Iterator[None]:
        """Take the files that ``create`` wrote for read, as long as nobody changes them.

        Their digests were computed from what was read back from them.
        """
        written = self._written.items()
        with reuse_digests((status, self._jobs[path].result().blake3) for path, status in written):
            yield

    def wait_for_disk(self) -> None:
        """Wait until every file given to ``sync`` is on disk."""
        for sync in self._syncs:
            sync.result()

    def close(self) -> None:
        """Cancel jobs that have not started, and wait for the others."""
        self._hashing.shutdown(cancel_futures=True)
        self._syncing.shutdown(cancel_futures=True)
