"""A file seen through a map: views of its bytes, where a view lies, and pages given back."""

import mmap
from pathlib import Path
from typing import TYPE_CHECKING, Any

from zoo.errors import SourceError, VerificationError
from zoo.spans import Span

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Array = NDArray[np.generic[Any]]


class MappedFile:
    """A file of which arrays are views. It is opened when the first is asked for.

    Args:
        path: the file.
        end: how many bytes it must have.
    """

    def __init__(self, path: Path, end: int) -> None:
        self.path = path
        self._end = end
        self._map: mmap.mmap | None = None
        self._base = 0

    def array(self, dtype: str, count: int, offset: int) -> "Array":
        """Return a read-only view of ``count`` elements, which keeps the map open.

        Raises:
            SourceError: the file cannot be opened any more.
            VerificationError: it has become too short.
        """
        import numpy as np

        return np.frombuffer(self._mapped(), dtype, count, offset)

    def locate(self, array: "Array") -> Span | None:
        """Return the bytes that an array is a view of, if it is one of them as they are."""
        if self._map is None or not array.flags.c_contiguous or not array.nbytes:
            return None
        offset = _address(array) - self._base
        if not 0 <= offset <= len(self._map) - array.nbytes:
            return None
        return Span(self.path, offset, array.nbytes)

    def release(self, offset: int, length: int) -> None:
        """Give back the memory that pages with these bytes occupy; they may be read again."""
        begin = offset // mmap.PAGESIZE * mmap.PAGESIZE
        length += offset - begin
        if self._map is not None and length and hasattr(mmap, "MADV_DONTNEED"):
            self._map.madvise(mmap.MADV_DONTNEED, begin, length)

    def close(self) -> None:
        """Let go of the map. It goes when the last view of it does."""
        self._map = None

    def _mapped(self) -> mmap.mmap:
        import numpy as np

        if self._map is None:
            try:
                with self.path.open("rb") as file:
                    found = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            except (OSError, ValueError) as error:
                why = f"{self.path} is gone since its header was read: {error}"
                raise SourceError(why) from error
            if len(found) < self._end:
                raise VerificationError(
                    f"{self.path} was cut short since its header was read", "fetch it again"
                )
            self._map, self._base = found, _address(np.frombuffer(found, np.uint8))
        return self._map


def _address(array: "Array") -> int:
    address: int = array.__array_interface__["data"][0]
    return address
