"""What the values of buffers are known to be, so that leaving them out loses nothing."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


def is_arange(array: "NDArray[np.generic[Any]]") -> bool:
    """Whether a buffer holds 0, 1, 2, ...: positions."""
    import numpy as np

    return np.array_equal(array.reshape(-1), np.arange(array.size))


def is_causal_mask(array: "NDArray[np.generic[Any]]") -> bool:
    """Whether a buffer says that each token sees those before it and itself."""
    import numpy as np

    square = array.reshape(array.shape[-2:]) if array.size and array.ndim >= 2 else array[None]
    return bool(square.shape[0] == square.shape[1] and np.array_equal(square, np.tri(len(square))))


def is_mask_value(array: "NDArray[np.generic[Any]]") -> bool:
    """Whether a buffer holds one score that leaves no weight to what has it."""
    return array.size == 1 and float(array.reshape(-1)[0]) <= -1e4
