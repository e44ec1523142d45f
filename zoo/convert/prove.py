"""Proving a conversion: the Hub's tensors are rebuilt from what was written, bit for bit."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from zoo.errors import VerificationError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Array = NDArray[np.generic[Any]]

CHUNK = 1 << 20


def same_bits(ours: "Array", theirs: "Array") -> bool:
    """Whether two arrays have one shape and the same bytes (so NaN equals itself, -0 not 0)."""
    import numpy as np

    if ours.shape != theirs.shape or ours.dtype.itemsize != theirs.dtype.itemsize:
        return False
    a, b = (_words(np.ascontiguousarray(array)) for array in (ours, theirs))
    return all(
        np.array_equal(a[k : k + CHUNK], b[k : k + CHUNK]) for k in range(0, a.size or 1, CHUNK)
    )


def _words(array: "Array") -> "Array":
    """View contiguous bytes in the widest unit that divides them."""
    import numpy as np

    flat = array.reshape(-1).view(np.uint8)
    return flat.view(np.uint64) if flat.size % 8 == 0 else flat


def require_same(name: str, rebuilt: "Sequence[Array]", original: "Sequence[Array]") -> None:
    """Stop if a tensor was not rebuilt exactly.

    Raises:
        VerificationError: names the tensor of ours.
    """
    if len(rebuilt) != len(original) or not all(map(same_bits, rebuilt, original)):
        raise VerificationError(
            f"the round trip of {name} is not exact", "this is a fault of the family's rules"
        )
