"""Stretches of files: copied by the kernel and compared through small buffers.

A tensor that is stored as it came needs neither a map of the file nor memory of its size.
"""

import contextlib
import errno
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from zoo.errors import VerificationError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

CHUNK = 1 << 19  # stays in the processor's cache between two uses
COLUMNS = 32
NOT_HERE = {errno.EXDEV, errno.ENOSYS, errno.EINVAL, errno.EOPNOTSUPP, errno.EBADF}


@dataclass(frozen=True)
class Span:
    """Bytes of a file.

    Attributes:
        path: the file.
        offset: where they begin.
        length: how many there are.
    """

    path: Path
    offset: int
    length: int


def copy_span(span: Span, target: int) -> bool:
    """Append a span to an open file within the kernel.

    Args:
        span: what to copy.
        target: descriptor of the file to write, at its end.

    Returns:
        whether it was copied; ``False`` where the system or the file system cannot, and then
        nothing was written.

    Raises:
        VerificationError: the source ends before the span does.
        OSError: the target cannot be written.
    """
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


def same_spans(one: Span, other: Span) -> bool:
    """Whether two spans hold the same bytes."""
    if one.length != other.length:
        return False
    a = b = bytearray()
    with _opened(one.path) as first, _opened(other.path) as second:
        for at in range(0, one.length, CHUNK):
            size = min(CHUNK, one.length - at)
            if size != len(a):
                a, b = bytearray(size), bytearray(size)
            got = os.preadv(first, [a], one.offset + at), os.preadv(second, [b], other.offset + at)
            if got != (size, size) or a != b:
                return False
    return True


def blocks(*arrays: "NDArray[np.generic[Any]]") -> "Iterator[list[NDArray[np.generic[Any]]]]":
    """Yield arrays of one shape in small pieces, each contiguous and of the same elements.

    No copy is made of their size, not even of a matrix that is stored the other way round.
    """
    if all(array.flags.c_contiguous for array in arrays):
        arrays = tuple(array.reshape(-1) for array in arrays)
    first = arrays[0]
    rows = max(1, CHUNK * len(first) // max(1, first.nbytes))
    for start in range(0, len(first), rows):
        yield [_contiguous(array[start : start + rows]) for array in arrays]


def _contiguous(array: "NDArray[np.generic[Any]]") -> "NDArray[np.generic[Any]]":
    """Copy an array, unless it is contiguous, some columns at a time.

    The other way round, a whole row touches as many pages as it has columns: that is 6 times as
    slow.
    """
    import numpy as np

    if array.flags.c_contiguous or array.ndim < 2:
        return np.ascontiguousarray(array)
    copy = np.empty(array.shape, array.dtype)
    for start in range(0, array.shape[1], COLUMNS):
        copy[:, start : start + COLUMNS] = array[:, start : start + COLUMNS]
    return copy


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[int]:
    handle = os.open(path, os.O_RDONLY)
    try:
        yield handle
    finally:
        os.close(handle)
