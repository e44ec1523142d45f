"""Proving a conversion: the Hub's tensors are rebuilt from what was written, bit for bit."""

from collections.abc import Callable, Sequence
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


def bitwise_equal(ours: "Array", theirs: "Array", convert: "Convert | None" = None) -> bool:
    """Whether two arrays have one shape and the same bytes (so NaN equals itself, -0 not 0).

    Args:
        ours, theirs: the arrays.
        convert: what is done to each piece of ``theirs`` before it is compared.
    """
    if ours.shape != theirs.shape:
        return False
    for one, other in blocks(ours, theirs):
        other = other if convert is None else convert(other)
        if one.dtype.itemsize != other.dtype.itemsize:
            return False
        if not _equal(one, other):
            return False
    return True


def _equal(one: "NumpyArray", other: "NumpyArray") -> bool:
    import numpy as np

    return np.array_equal(_words(one), _words(other))


def _words(array: "NumpyArray") -> "NumpyArray":
    """View contiguous bytes in the widest unit that divides them."""
    import numpy as np

    flat = array.reshape(-1).view(np.uint8)
    return flat.view(np.uint64) if flat.size % 8 == 0 else flat


def require_bitwise_equal(
    name: str,
    rebuilt: "Sequence[Array]",
    original: "Sequence[Array]",
    convert: "Convert | None" = None,
) -> None:
    """Stop if a tensor was not rebuilt exactly.

    Args:
        name: the tensor, by our name.
        rebuilt: the Hub's tensors, from what was written.
        original: the same, from the source.
        convert: changes the dtype of a piece of the source, where it was changed.

    Raises:
        VerificationError: names the tensor.
    """

    def same(ours: "Array", theirs: "Array") -> bool:
        one, other = file_range_of(ours), file_range_of(theirs)
        if convert or one is None or other is None or ours.shape != theirs.shape:
            return bitwise_equal(ours, theirs, convert)
        return ranges_equal(one, other)

    if len(rebuilt) != len(original) or not all(map(same, rebuilt, original)):
        raise VerificationError(
            f"the round trip of {name} is not exact",
            "the source changed meanwhile, or this is a fault of the family's rules",
        )
