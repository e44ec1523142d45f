"""Ranges of files: copied by the kernel, and compared through small buffers."""

import contextlib
import errno
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from zoo.errors import VerificationError
from zoo.io.descriptors import read_at
from zoo.io.files import open_regular
from zoo.io.tensors.file_array import WINDOW, FileArray, FileRange

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    NumpyArray = NDArray[np.generic[Any]]
    Array = NumpyArray | FileArray

__all__ = ["CHUNK", "FileRange", "blocks", "copy_range", "file_range_of", "ranges_equal"]

CHUNK = 1 << 19  # stays in the processor's cache between two uses
COLUMNS = 32
NOT_HERE = {errno.EXDEV, errno.ENOSYS, errno.EINVAL, errno.EOPNOTSUPP, errno.EBADF}


def file_range_of(array: "Array") -> FileRange | None:
    """Return the range of a file that holds an array, or ``None`` if it is not one range."""
    return array.file_range if isinstance(array, FileArray) else None


def copy_range(span: FileRange, target: int) -> bool:
    """Append a range to an open file within the kernel; ``False`` where that is not supported."""
    # An unchanged tensor is copied without memory for its data.
    if not hasattr(os, "copy_file_range"):
        return False
    done = 0
    with _opened(span.path) as source:
        while done < span.length:
            try:
                count = os.copy_file_range(
                    source, target, span.length - done, offset_src=span.offset + done
                )
            except OSError as error:
                if error.errno in NOT_HERE and not done:
                    return False
                raise
            if count == 0:
                raise VerificationError(f"{span.path} was cut short while it was read")
            done += count
    return True


def ranges_equal(first: FileRange, second: FileRange) -> bool:
    """Return ``True`` if two ranges hold the same bytes."""
    if first.length != second.length:
        return False
    a = b = bytearray()
    with _opened(first.path) as file, _opened(second.path) as other_file:
        for at in range(0, first.length, CHUNK):
            size = min(CHUNK, first.length - at)
            if size != len(a):
                a = bytearray(size)
                b = bytearray(size)
            counts = (
                read_at(file, a, first.offset + at),
                read_at(other_file, b, second.offset + at),
            )
            if counts != (size, size) or a != b:
                return False
    return True


def blocks(*arrays: "Array") -> "Iterator[list[NumpyArray]]":
    """Yield arrays of equal shape in small pieces, each in memory and contiguous."""
    # Pieces that are yielded together have the same indices. An array is never copied as a whole,
    # not even a transposed matrix, unless it is in a file and smaller than ``WINDOW`` bytes
    arrays = tuple(
        # a small one is read at once, because pieces are slower
        array.read()
        if isinstance(array, FileArray) and not array.contiguous and array.nbytes <= WINDOW
        else array
        for array in arrays
    )
    if all(
        array.contiguous if isinstance(array, FileArray) else array.flags.c_contiguous
        for array in arrays
    ):
        arrays = tuple(array.reshape(-1) for array in arrays)
    first = arrays[0]
    far = any(isinstance(array, FileArray) and not array.contiguous for array in arrays)
    rows = max(1, (WINDOW // 2 if far else CHUNK) * len(first) // max(1, first.nbytes))
    for start in range(0, len(first), rows):
        yield [_contiguous(array[start : start + rows]) for array in arrays]


def _contiguous(array: "Array") -> "NumpyArray":
    """Return an array in memory, contiguous; copied some columns at a time if it is not."""
    # In a transposed matrix, a whole row touches as many pages as it has columns, and copying by
    # rows is 6 times slower
    import numpy as np

    if isinstance(array, FileArray):
        array = array.read()
    if array.flags.c_contiguous or array.ndim < 2:
        return np.ascontiguousarray(array)
    copy = np.empty(array.shape, array.dtype)
    for start in range(0, array.shape[1], COLUMNS):
        copy[:, start : start + COLUMNS] = array[:, start : start + COLUMNS]
    return copy


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[int]:
    with open_regular(path) as file:
        yield file.fileno()
