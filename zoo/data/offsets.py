"""Offsets on disk, read one by one without mapping the file."""

import weakref
from io import BufferedReader
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from zoo.errors import SourceError
from zoo.io.descriptors import read_at
from zoo.io.files import open_regular

Offsets: TypeAlias = NDArray[np.int64]
OFFSET_BYTES = 8
BLOCK_OFFSETS = 256  # Offsets that are read at once at the end of a search.


class OffsetReader:
    """Offsets of which a process reads a few, here and there.

    The memory of a process includes all that it has read of a map, in pages of up to 2 MB: after
    some hundred offsets the whole file. A file that is read takes none.

    Args:
        offsets: an array, or a map of a file, (n,), int64 or other integers.
    """

    def __init__(self, offsets: NDArray[np.integer[Any]]) -> None:
        self._offsets = offsets
        self._dtype = offsets.dtype
        self._file: BufferedReader | None = None
        if isinstance(offsets, np.memmap) and offsets.filename is not None:
            self._path = Path(offsets.filename)
            self._file = open_regular(self._path)
            self._start = offsets.offset
            weakref.finalize(self, self._file.close)

    def __len__(self) -> int:
        return len(self._offsets)

    def __getitem__(self, index: int) -> int:
        """Return an offset; the index is not negative."""
        if self._file is None:
            return int(self._offsets[index])
        return int(self.part(index, index + 1)[0])

    def pair(self, index: int) -> tuple[int, int]:
        """Return an offset and the one after it."""
        first, second = self.part(index, index + 2).tolist()
        return first, second

    def count_up_to(self, value: int) -> int:
        """Return the number of offsets that are at most a value; the offsets ascend."""
        first = 0
        last = len(self)
        while last - first > BLOCK_OFFSETS:
            middle = (first + last) // 2
            if self[middle] <= value:
                first = middle + 1
            else:
                last = middle
        return first + int(np.searchsorted(self.part(first, last), value, side="right"))

    def part(self, first: int, last: int) -> NDArray[Any]:
        """Return successive offsets, (last - first,)."""
        if self._file is None:
            return self._offsets[first:last]
        return np.frombuffer(self._read(first, last - first), self._dtype)

    def _read(self, index: int, count: int) -> bytearray:
        """Return the bytes of successive offsets of the file."""
        assert self._file is not None, "the offsets are in a file"
        item_size = self._dtype.itemsize
        buffer = bytearray(count * item_size)
        size = read_at(self._file.fileno(), buffer, self._start + index * item_size)
        if size < len(buffer):
            raise SourceError(
                f"{self._path}: offset {index} is missing, since the file has become shorter",
                "restore it, and resume",
            )
        return buffer


def map_apart(offsets: Offsets, first: int, last: int) -> Offsets:
    """Return some successive offsets, of a file in a map of their own.

    It is closed when they are no longer used, so that who reads all offsets in parts does not hold
    them all.
    """
    if not isinstance(offsets, np.memmap) or offsets.filename is None:
        return offsets[first:last]
    start = offsets.offset + first * OFFSET_BYTES
    size = last - first
    return np.memmap(offsets.filename, np.dtype("<i8"), "r", offset=start, shape=(size,))
