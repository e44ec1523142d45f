"""A file that holds arrays, each at an offset of its own."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from zoo.io.file_array import DataFile, FileArray
from zoo.spans import Span, span_of

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    NumpyArray = NDArray[np.generic[Any]]


class MappedFile:
    """A file that holds arrays. It is opened when the first is read.

    Args:
        path: the file.
        end: the least number of bytes that it must have.
    """

    def __init__(self, path: Path, end: int) -> None:
        self.path = path
        self._file = DataFile(path, end)

    def array(self, dtype: str, count: int, offset: int) -> "NumpyArray":
        """Read ``count`` elements into memory.

        Raises:
            SourceError: the file cannot be read any more.
            VerificationError: it became too short, or changed since it was first read.
        """
        array = self.lazy(dtype, (count,), offset).read()
        array.flags.writeable = False
        return array

    def lazy(
        self,
        dtype: str,
        shape: tuple[int, ...],
        offset: int,
        strides: tuple[int, ...] | None = None,
    ) -> FileArray:
        """Return an array that is read when its elements are needed.

        Args:
            dtype, shape: of the array.
            offset: position of the first element in the file.
            strides: bytes from one element to the next by axis; row-major by default.
        """
        if strides is None:
            return FileArray.stored(self._file, dtype, shape, offset)
        return FileArray(self._file, dtype, shape, strides, offset)

    def locate(self, array: "NumpyArray | FileArray") -> Span | None:
        """Return the bytes of the file that an array consists of, if it is one of them."""
        return span_of(array)

    def release(self, offset: int, length: int) -> None:
        """Give back memory; none is held between two reads."""

    def close(self) -> None:
        """Close the file; none is open between two reads."""
