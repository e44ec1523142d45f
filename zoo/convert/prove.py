"""Proving a conversion: the Hub's tensors are rebuilt from what was written, bit for bit."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from zoo.errors import VerificationError
from zoo.formats import TensorReader
from zoo.spans import blocks, same_spans

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Array = NDArray[np.generic[Any]]


def same_bits(ours: "Array", theirs: "Array") -> bool:
    """Whether two arrays have one shape and the same bytes (so NaN equals itself, -0 not 0)."""
    import numpy as np

    if ours.shape != theirs.shape or ours.dtype.itemsize != theirs.dtype.itemsize:
        return False
    return all(np.array_equal(_words(a), _words(b)) for a, b in blocks(ours, theirs))


def _words(array: "Array") -> "Array":
    """View contiguous bytes in the widest unit that divides them."""
    import numpy as np

    flat = array.reshape(-1).view(np.uint8)
    return flat.view(np.uint64) if flat.size % 8 == 0 else flat


def require_same(
    name: str,
    rebuilt: "Sequence[Array]",
    original: "Sequence[Array]",
    readers: tuple[TensorReader, TensorReader],
) -> None:
    """Stop if a tensor was not rebuilt exactly.

    Args:
        name: the tensor, by our name.
        rebuilt: the Hub's tensors, from what was written.
        original: the same, from the source.
        readers: where the two come from: what is in a file as it is, is compared there.

    Raises:
        VerificationError: names the tensor.
    """

    def same(ours: "Array", theirs: "Array") -> bool:
        spans = readers[0].locate(ours), readers[1].locate(theirs)
        if spans[0] is None or spans[1] is None or ours.shape != theirs.shape:
            return same_bits(ours, theirs)
        return same_spans(spans[0], spans[1])

    if len(rebuilt) != len(original) or not all(map(same, rebuilt, original)):
        raise VerificationError(
            f"the round trip of {name} is not exact", "this is a fault of the family's rules"
        )
