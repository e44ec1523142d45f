"""Arrays in files, read in pieces with ``pread`` when their elements are needed."""

import math
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from zoo.errors import SourceError, VerificationError
from zoo.io.descriptors import read_at
from zoo.io.files import open_regular, reading

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    NumpyArray = NDArray[np.generic[Any]]

WINDOW = 1 << 26
"""Bytes up to which a range with gaps is read in one piece."""

REQUEST = 1 << 30
"""Maximum bytes of one system call: Linux reads at most 2 GB at once, other systems less."""


@dataclass(frozen=True)
class FileRange:
    """Range of bytes of a file."""

    path: Path
    offset: int  # position of the first byte
    length: int  # number of bytes


class DataFile:
    """A file that is read in pieces and must not change meanwhile."""

    # A memory map would need less code, but access to a page of a truncated file ends the process
    # with SIGBUS, and a map needs address space for the whole file.

    # It is opened for each read, because a checkpoint may have more files than a process may open.
    def __init__(self, path: Path, end: int) -> None:
        self.path = path
        self._end = end
        self._state: tuple[int, ...] | None = None

    def read(self, pieces: "Iterable[tuple[int, memoryview]]") -> None:
        """Fill buffers from the file."""
        try:
            file = open_regular(self.path)
        except SourceError as error:
            raise SourceError(
                f"{self.path} is gone since its header was read: {error.what}"
            ) from error
        with file:
            status = os.fstat(file.fileno())
            if status.st_size < self._end:
                raise self._short()
            state = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)
            if self._state not in (None, state):
                raise VerificationError(
                    f"{self.path} was changed while it was read", "try again when it is complete"
                )
            self._state = state
            with reading(self.path):
                for offset, buffer in pieces:
                    self._fill(file.fileno(), offset, buffer)

    def _fill(self, descriptor: int, offset: int, buffer: memoryview) -> None:
        done = 0
        while done < len(buffer):
            count = read_at(descriptor, buffer[done : done + REQUEST], offset + done)
            if count == 0:
                raise self._short()
            done += count

    def _short(self) -> VerificationError:
        return VerificationError(
            f"{self.path} was cut short since its header was read", "fetch it again"
        )


@dataclass(frozen=True, eq=False)
class FileArray:
    """An array in a file that is transposed, sliced and reshaped without being read."""

    # ``numpy.asarray`` and numpy's functions read it into memory.

    file: DataFile  # file that holds the elements
    code: str  # numpy's code of the dtype, such as ``<f4``
    shape: tuple[int, ...]  # size of each axis
    strides: tuple[int, ...]  # distance in bytes between neighbouring elements, for each axis
    offset: int  # position of the first element in the file, in bytes

    @classmethod
    def stored(cls, file: DataFile, code: str, shape: tuple[int, ...], offset: int) -> "FileArray":
        """Return an array that is stored in row-major order without gaps."""
        return cls(file, code, shape, _row_major(shape, int(code[2:])), offset)

    @property
    def dtype(self) -> "np.dtype[Any]":
        """Dtype of the elements."""
        import numpy as np

        return np.dtype(self.code)

    @property
    def itemsize(self) -> int:
        """Size of an element in bytes."""
        return int(self.code[2:])

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Size of all elements in bytes."""
        return self.size * self.itemsize

    @property
    def contiguous(self) -> bool:
        """``True`` if the elements are stored in row-major order without gaps."""
        usual = _row_major(self.shape, self.itemsize)
        axes = zip(self.shape, self.strides, usual, strict=True)
        return self.size == 0 or all(n == 1 or stride == expected for n, stride, expected in axes)

    @property
    def file_range(self) -> FileRange | None:
        """Range of the file that holds the array; ``None`` if it is empty or not contiguous."""
        if not self.contiguous or not self.nbytes:
            return None
        return FileRange(self.file.path, self.offset, self.nbytes)

    @property
    def T(self) -> "FileArray":
        """The array with its axes reversed."""
        return replace(self, shape=self.shape[::-1], strides=self.strides[::-1])

    def swapaxes(self, first: int, second: int) -> "FileArray":
        """Return the array with two axes exchanged."""
        order = list(range(self.ndim))
        order[first], order[second] = order[second], order[first]
        return self._ordered(order)

    def reshape(self, *shape: Any) -> "FileArray | NumpyArray":
        """Return the array in a different shape; it is read if it is not contiguous."""
        sizes: tuple[int, ...] = shape[0] if isinstance(shape[0], tuple) else shape
        if not self.contiguous:
            return self.read().reshape(sizes)
        if -1 in sizes:
            known_size = math.prod(n for n in sizes if n != -1)
            sizes = tuple(self.size // max(1, known_size) if n == -1 else n for n in sizes)
        if math.prod(sizes) != self.size:
            raise ValueError(f"cannot reshape an array of shape {self.shape} into {sizes}")
        return replace(self, shape=sizes, strides=_row_major(sizes, self.itemsize))

    def copy(self) -> "NumpyArray":
        """Return the array in memory."""
        return self.read()

    def read(self) -> "NumpyArray":
        """Return the array in memory."""
        import numpy as np

        if self.contiguous:
            array = np.empty(self.shape, self.code)
            if array.nbytes:
                self.file.read([(self.offset, _bytes(array))])
            return array
        steps = zip(self.shape, self.strides, strict=True)
        extent = sum((n - 1) * step for n, step in steps) + self.itemsize
        if extent <= WINDOW:
            buffer = np.empty(extent, np.uint8)
            self.file.read([(self.offset, _bytes(buffer))])
            return np.ndarray(self.shape, self.code, buffer.data, 0, self.strides)
        import numpy as np

        order = sorted(range(self.ndim), key=lambda axis: -self.strides[axis])
        stored = self._ordered(order)
        gathered = np.empty((*stored.shape, 1), self.code)  # so that an element is an array
        # axes from ``split`` on are stored without gaps
        split = stored.ndim
        size = self.itemsize
        while split and stored.strides[split - 1] == size:
            split -= 1
            size *= stored.shape[split]
        pieces = (
            (self.offset + sum(map(int.__mul__, place, stored.strides)), _bytes(gathered[place]))
            for place in np.ndindex(stored.shape[:split])
        )
        self.file.read(pieces)
        return gathered[..., 0].transpose(tuple(np.argsort(order)))

    def _ordered(self, order: list[int]) -> "FileArray":
        shape = tuple(self.shape[axis] for axis in order)
        return replace(self, shape=shape, strides=tuple(self.strides[axis] for axis in order))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> "NumpyArray":
        """Return the array in memory, for ``numpy.asarray`` and numpy's functions."""
        array = self.read()
        return array if dtype is None else array.astype(dtype, copy=False)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, key: int | slice) -> "FileArray":
        """Return one index or a contiguous slice of the first axis."""
        if isinstance(key, int):
            if not -len(self) <= key < len(self):
                raise IndexError(key)
            offset = self.offset + key % len(self) * self.strides[0]
            return replace(self, shape=self.shape[1:], strides=self.strides[1:], offset=offset)
        start, stop, step = key.indices(len(self))
        if step != 1:
            raise ValueError("only a slice with step 1 can be taken")
        rows = max(0, stop - start)
        offset = self.offset + start * self.strides[0]
        return replace(self, shape=(rows, *self.shape[1:]), offset=offset)

    def __iter__(self) -> "Iterator[FileArray]":
        """Iterate over the rows of the first axis."""
        return (self[row] for row in range(len(self)))


def _row_major(shape: tuple[int, ...], itemsize: int) -> tuple[int, ...]:
    return tuple(itemsize * math.prod(shape[axis + 1 :]) for axis in range(len(shape)))


def _bytes(array: "NumpyArray") -> memoryview:
    import numpy as np

    return array.reshape(-1).view(np.uint8).data
