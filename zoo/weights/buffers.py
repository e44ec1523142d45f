"""Buffers with known values, which may be left out without loss, and checks of their values."""

from typing import TYPE_CHECKING, Any

from zoo.weights.rules import Ignore

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


def is_frequencies(array: "NDArray[np.generic[Any]]") -> bool:
    """Return whether an array is 1, r, r^2, ... with a ratio r below 1, as rotary frequencies are.

    The ratio is compared with the tolerance of half precision, in which some files store them.
    """
    import numpy as np

    values = array.astype(np.float64).reshape(-1)
    if values.size == 0 or not abs(values[0] - 1) <= 1e-3 or not np.all(values > 0):
        return False
    if values.size == 1:
        return True
    logarithms = np.log(values)
    slope = logarithms[-1] / (values.size - 1)
    return bool(slope < 0 and np.abs(logarithms - slope * np.arange(values.size)).max() < 0.02)


def causal_buffers(attention: str) -> list[Ignore]:
    """Return the buffers of causal attention in files of early classes.

    Args:
        attention: template of the prefix of the attention's names.
    """
    return [
        Ignore(f"{attention}bias", "a buffer: the causal mask", is_causal_mask),
        Ignore(f"{attention}masked_bias", "a buffer: the score of masked positions", is_mask_value),
    ]


def frequencies_buffer(attention: str) -> Ignore:
    """Return the buffer of rotary frequencies; for ``attention``, see ``causal_buffers``."""
    return Ignore(
        f"{attention}rotary_emb.inv_freq",
        "a buffer: the frequencies of rotary positions",
        is_frequencies,
    )
