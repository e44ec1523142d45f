"""Checks of buffers with known values, which may be left out without loss."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


def is_arange(array: "NDArray[np.generic[Any]]") -> bool:
    """Return whether an array is 0, 1, 2, ..., the buffer of position ids."""
    import numpy as np

    return np.array_equal(array.reshape(-1), np.arange(array.size))


def is_causal_mask(array: "NDArray[np.generic[Any]]") -> bool:
    """Return whether an array is a causal mask: ones on and below the diagonal."""
    import numpy as np

    square = array.reshape(array.shape[-2:]) if array.size and array.ndim >= 2 else array[None]
    return bool(square.shape[0] == square.shape[1] and np.array_equal(square, np.tri(len(square))))


def is_mask_value(array: "NDArray[np.generic[Any]]") -> bool:
    """Return whether an array is one score of at most -1e4, the value of masked positions."""
    return array.size == 1 and float(array.reshape(-1)[0]) <= -1e4
