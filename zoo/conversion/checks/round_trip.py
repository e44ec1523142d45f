"""Bitwise comparison of the Hub's tensors with those rebuilt from the written files."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from zoo.conversion.dtypes import widen
from zoo.errors import VerificationError
from zoo.io.tensors.file_range import blocks, file_range_of, ranges_equal
from zoo.io.tensors.formats import FLOATING

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
    for first_block, second_block in blocks(first, second):
        if convert is not None:
            second_block = convert(second_block)
        if first_block.dtype.itemsize != second_block.dtype.itemsize:
            return False
        if not np.array_equal(_words(first_block), _words(second_block)):
            return False
    return True


def _words(array: "NumpyArray") -> "NumpyArray":
    """View contiguous bytes as 64-bit words if their number allows it, which compares faster."""
    import numpy as np

    flat = array.reshape(-1).view(np.uint8)
    return flat.view(np.uint64) if flat.size % 8 == 0 else flat


def equal_values(first: "Array", first_code: str, second: "Array", second_code: str) -> bool:
    """Return whether two arrays are equal bit for bit, in the wider dtype if they differ in it."""
    if first_code == second_code:
        return bitwise_equal(first, second)
    if not {first_code, second_code} <= FLOATING:
        return False
    return bitwise_equal(*widen((first, second), (first_code, second_code)))


def require_bitwise_equal(
    name: str, first: "Array", second: "Array", convert: "Convert | None" = None
) -> None:
    """Raise an error if a tensor of the Hub was not rebuilt exactly from the written files."""
    first_range = file_range_of(first)
    second_range = file_range_of(second)
    if convert or first_range is None or second_range is None or first.shape != second.shape:
        is_equal = bitwise_equal(first, second, convert)
    else:
        is_equal = ranges_equal(first_range, second_range)
    if not is_equal:
        raise VerificationError(
            f"the round trip of {name} is not exact",
            "the source changed meanwhile, or this is a fault of the family's rules",
        )
