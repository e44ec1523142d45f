"""Writing tensors as safetensors, one at a time, in shards of bounded size."""

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Any, BinaryIO

from blake3 import blake3

from zoo.checkpoint import WEIGHTS, WEIGHTS_INDEX, FileDigest, encode
from zoo.io.progress import Advance
from zoo.io.tensors.file_range import CHUNK, copy_range, file_range_of
from zoo.io.tensors.formats import TensorInfo
from zoo.io.tensors.safetensors import header_bytes, write_chunks

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from zoo.io.tensors.file_array import FileArray

    Array = NDArray[np.generic[Any]] | FileArray
    Pieces = Iterable[Array]

Create = Callable[[Path], AbstractContextManager[BinaryIO]]

SHARD_BYTES = 5_000_000_000  # as the Hub's own client does
PAUSE = 0.005  # seconds until a growing file is read on
WHOLE = Event()  # of a file that does not grow
WHOLE.set()


@dataclass(frozen=True)
class TensorToWrite:
    """One tensor to write.

    Attributes:
        name: its name in the file.
        info: its dtype and shape.
        chunks: returns arrays whose elements, one after the other, are its data; what they are
            views of may be given back once all were taken.
    """

    name: str
    info: TensorInfo
    chunks: "Callable[[], Pieces]"


def create(path: Path) -> BinaryIO:
    """Open a new file to write."""
    return path.open("wb")


def write_weights(
    directory: Path,
    outputs: Sequence[TensorToWrite],
    advance: Advance,
    *,
    metadata: Mapping[str, str],
    create: Create = create,
    shard_bytes: int = SHARD_BYTES,
) -> list[Path]:
    """Write tensors to ``model.safetensors``, or to shards with an index.

    Args:
        directory: where to.
        outputs: what, in order.
        advance: told how many bytes were written.
        metadata: what the header says of the file.
        create: how a file to append to is opened.
        shard_bytes: the most data in one file.

    Returns:
        the files written.
    """
    shards = list(_shards(outputs, shard_bytes))
    if len(shards) == 1:
        with create(directory / WEIGHTS) as file:
            _write_shard(file, shards[0], advance, metadata)
        return [directory / WEIGHTS]
    names = [f"model-{k + 1:05d}-of-{len(shards):05d}.safetensors" for k in range(len(shards))]
    for name, shard in zip(names, shards, strict=True):
        with create(directory / name) as file:
            _write_shard(file, shard, advance, metadata)
    where = {out.name: name for name, shard in zip(names, shards, strict=True) for out in shard}
    index = {
        "metadata": {"total_size": sum(out.info.nbytes for out in outputs)},
        "weight_map": where,
    }
    (directory / WEIGHTS_INDEX).write_bytes(encode(index))
    return [*(directory / name for name in names), directory / WEIGHTS_INDEX]


def _shards(outputs: Sequence[TensorToWrite], limit: int) -> Iterator[list[TensorToWrite]]:
    shard: list[TensorToWrite] = []
    size = 0
    for out in outputs:
        if shard and size + out.info.nbytes > limit:
            yield shard
            shard, size = [], 0
        shard.append(out)
        size += out.info.nbytes
    yield shard


def _write_shard(
    file: BinaryIO, outputs: Sequence[TensorToWrite], advance: Advance, metadata: Mapping[str, str]
) -> None:
    file.write(header_bytes({out.name: out.info for out in outputs}, metadata))
    for out in outputs:
        for piece in out.chunks():
            _append(file, piece)
        advance(out.info.nbytes)


def _append(file: BinaryIO, piece: "Array") -> None:
    """Write an array; the kernel copies what another file holds already."""
    span = file_range_of(piece)
    if span is not None:
        file.flush()
        if copy_range(span, file.fileno()):
            file.seek(0, os.SEEK_END)
            return
    write_chunks(file, (piece,))


def hash_file(path: Path, finished: Event = WHOLE) -> FileDigest:
    """Return a file's length and BLAKE3 digest, read in pieces.

    Args:
        path: the file.
        finished: set once nothing more will be appended to it.
    """
    hasher = blake3()
    size, last = 0, False
    buffer = memoryview(bytearray(CHUNK))
    with path.open("rb", buffering=0) as file:
        while not last:
            last = finished.wait(PAUSE)  # asked first: what is appended later is read next time
            while count := file.readinto(buffer):
                hasher.update(buffer[:count])
                size += count
    return FileDigest(bytes=size, blake3=hasher.hexdigest())


def _sync(path: Path) -> None:
    with path.open("rb") as file:
        os.fsync(file.fileno())


class BackgroundHasher:
    """Digests of files, worked out in the background; and files on their way to the disk."""

    def __init__(self) -> None:
        self._hashing = ThreadPoolExecutor(1)
        self._syncing = ThreadPoolExecutor(1)
        self._jobs: dict[Path, Future[FileDigest]] = {}
        self._syncs: list[Future[None]] = []

    def start(self, path: Path) -> None:
        """Begin with a file, unless that was done when it was created."""
        if path not in self._jobs:
            self._jobs[path] = self._hashing.submit(hash_file, path)

    @contextlib.contextmanager
    def create(self, path: Path) -> Iterator[BinaryIO]:
        """Open a new file to append to; its digest keeps up with what is written."""
        finished = Event()
        try:
            with path.open("wb") as file:
                self._jobs[path] = self._hashing.submit(hash_file, path, finished)
                yield file
        finally:
            finished.set()

    def sync(self, path: Path) -> None:
        """Begin to bring a file to the disk."""
        self._syncs.append(self._syncing.submit(_sync, path))

    def of(self, paths: Iterable[Path], directory: Path) -> dict[str, FileDigest]:
        """Wait for files that were begun; return their digests by their names in a directory."""
        return {str(path.relative_to(directory)): self._jobs[path].result() for path in paths}

    def wait_for_disk(self) -> None:
        """Wait until every file given to ``sync`` is on the disk."""
        for sync in self._syncs:
            sync.result()

    def close(self) -> None:
        """Drop what has not begun, and wait for what has."""
        self._hashing.shutdown(cancel_futures=True)
        self._syncing.shutdown(cancel_futures=True)
