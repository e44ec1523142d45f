"""Bitwise comparison of the Hub's tensors with those rebuilt from the written files."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from zoo.errors import VerificationError
from zoo.io.tensors.file_range import blocks, file_range_of, ranges_equal

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from zoo.io.tensors.file_array import FileArray

    NumpyArray = NDArray[np.generic[Any]]
    Array = NumpyArray | FileArray
    Convert = Callable[[NumpyArray], NumpyArray]


def bitwise_equal(first: "Array", second: "Array", convert: "Convert | None" = None) -> bool:
    """Return ``True`` if two arrays have equal shapes and bytes; NaN equals itself, -0 is not 0."""
    import numpy as np

    if first.shape != second.shape:
        return False
    for piece, reference in blocks(first, second):
        expected = reference if convert is None else convert(reference)
        if piece.dtype.itemsize != expected.dtype.itemsize:
            return False
        if not np.array_equal(_words(piece), _words(expected)):
            return False
    return True


def _words(array: "NumpyArray") -> "NumpyArray":
    """View contiguous bytes as 64-bit words if their number allows it, which compares faster."""
    import numpy as np

    flat = array.reshape(-1).view(np.uint8)
    return flat.view(np.uint64) if flat.size % 8 == 0 else flat


def require_bitwise_equal(
    name: str, first: "Array", second: "Array", convert: "Convert | None" = None
) -> None:
    """Raise an error if a tensor of the Hub was not rebuilt exactly from the written files."""
    ranges = file_range_of(first), file_range_of(second)
    if convert or ranges[0] is None or ranges[1] is None or first.shape != second.shape:
        same = bitwise_equal(first, second, convert)
    else:
        same = ranges_equal(ranges[0], ranges[1])
    if not same:
        raise VerificationError(
            f"the round trip of {name} is not exact",
            "the source changed meanwhile, or this is a fault of the family's rules",
        )
