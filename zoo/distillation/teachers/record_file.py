"""A file of records in blocks, which are only appended and are read through a memory map."""

import mmap
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from blake3 import blake3
from numpy.typing import NDArray

from zoo.errors import VerificationError

KEY_BYTES = 16
SIZE_BYTES = 4
COUNT_BYTES = 8
DIGEST_BYTES = 16
RECENT = 1 << 16  # records in the dictionary of the index before its arrays are sorted again

Bytes = NDArray[np.uint8]


class RecordFile:
    """The records in the complete blocks of a file.

    Args:
        path: the file, for messages.
        file: descriptor of the file.
        complete: number of its bytes in complete blocks.
        remedy: hint in errors.

    Raises:
        VerificationError: the file is truncated or damaged.
    """

    # A block has the number of its bytes, their BLAKE3 digest, and the bytes; a record has its key,
    # the number of its bytes, and the bytes. Numbers are little-endian.
    def __init__(self, path: Path, file: int, complete: int, remedy: str) -> None:
        self.path = path
        self._file = file
        self._remedy = remedy
        self._index = _Index()
        size = os.fstat(file).st_size
        if size < complete:
            raise VerificationError(
                f"{path} is truncated: it has {size:,} of {complete:,} bytes", remedy
            )
        self._map_file(complete)
        for start, end in self._blocks():
            self._index_records(start, end)

    @property
    def complete(self) -> int:
        """Number of bytes in complete blocks."""
        return len(self._map)

    def get(self, key: bytes) -> Bytes | None:
        """Return the record of a key, or ``None``."""
        at = self._index.get(key)
        if at is None or self._map[at : at + KEY_BYTES].tobytes() != key:
            return None
        start = at + KEY_BYTES + SIZE_BYTES
        return self._map[start : start + self._number(at + KEY_BYTES, SIZE_BYTES)]

    def write_block(self, records: bytes) -> int:
        """Write a block after the complete ones, and return the number of bytes with it.

        It is complete once that number is recorded; ``read_block`` follows.
        """
        block = len(records).to_bytes(COUNT_BYTES, "little") + _digest(records) + records
        view = memoryview(block)
        at = self.complete
        while view:  # the system may write a part
            written = os.pwrite(self._file, view, at)
            view = view[written:]
            at = at + written
        os.fsync(self._file)
        return at

    def read_block(self, end: int) -> None:
        """Index the block that ends at the new number of complete bytes."""
        start = self.complete + COUNT_BYTES + DIGEST_BYTES
        self._map_file(end)
        self._index_records(start, end)

    def _map_file(self, size: int) -> None:
        self._map: Bytes = np.zeros(0, np.uint8)
        if size:
            content = mmap.mmap(self._file, size, access=mmap.ACCESS_READ)
            self._map = np.frombuffer(content, np.uint8)

    def _blocks(self) -> Iterator[tuple[int, int]]:
        """Yield the start and end of the records in each block, after checking its digest."""
        at = 0
        while at < self.complete:
            start = at + COUNT_BYTES + DIGEST_BYTES
            end = start + self._number(at, COUNT_BYTES)
            digest = self._map[at + COUNT_BYTES : start].tobytes()
            if end > self.complete or _digest(self._map[start:end]) != digest:
                raise VerificationError(f"{self.path} is damaged at byte {at:,}", self._remedy)
            yield start, end
            at = end

    def _index_records(self, start: int, end: int) -> None:
        """Note the position of each record of a block."""
        at = start
        while at < end:
            self._index.add(self._map[at : at + KEY_BYTES].tobytes(), at)
            at += KEY_BYTES + SIZE_BYTES + self._number(at + KEY_BYTES, SIZE_BYTES)
        if at != end:
            raise VerificationError(f"{self.path} is damaged at byte {end:,}", self._remedy)

    def _number(self, at: int, size: int) -> int:
        return int.from_bytes(self._map[at : at + size].tobytes(), "little")


def encode_record(key: bytes, data: bytes) -> bytes:
    """Return a record as it is in a block."""
    return key + len(data).to_bytes(SIZE_BYTES, "little") + data


class _Index:
    """Positions of records by the first 8 bytes of their keys, in sorted arrays."""

    def __init__(self) -> None:
        self._keys = np.zeros(0, np.uint64)
        self._positions = np.zeros(0, np.int64)
        self._recent: dict[int, int] = {}

    def get(self, key: bytes) -> int | None:
        number = int.from_bytes(key[:8], "little")
        if number in self._recent:
            return self._recent[number]
        place = int(self._keys.searchsorted(np.uint64(number)))
        if place == len(self._keys) or int(self._keys[place]) != number:
            return None
        return int(self._positions[place])

    def add(self, key: bytes, position: int) -> None:
        self._recent[int.from_bytes(key[:8], "little")] = position
        if len(self._recent) == RECENT:
            keys = np.concatenate([self._keys, np.fromiter(self._recent, np.uint64)])
            positions = np.concatenate(
                [self._positions, np.fromiter(self._recent.values(), np.int64)]
            )
            order = keys.argsort(kind="stable")
            self._keys = keys[order]
            self._positions = positions[order]
            self._recent = {}


def _digest(content: Any) -> bytes:
    return blake3(content).digest(DIGEST_BYTES)
