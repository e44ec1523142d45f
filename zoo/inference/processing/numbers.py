"""Softmax, sigmoid, and short floats for JSON that round-trip to the same bits."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

DIGITS = 9  # significant decimal digits that identify every float32


def short_floats(array: "NDArray[np.floating[Any]]") -> list[Any]:
    """Return an array as nested lists of floats, float32 values with 9 significant digits.

    A float32 becomes the double nearest to its 9-digit decimal, which prints with 9 digits
    instead of 17 and rounds to the same float32. Doubles are unchanged.
    """
    import numpy as np

    if array.dtype != np.float32:
        return array.tolist()  # type: ignore[no-any-return]
    exact = array.astype(np.float64)
    size = np.abs(exact)
    # Powers of ten up to 10**22 and 9-digit integers are exact doubles, so that the quotient is
    # the double nearest to the decimal. Values outside the range keep all digits.
    ordinary = (size > 1e-12) & (size < 1e8)
    with np.errstate(divide="ignore", invalid="ignore"):
        decimals = DIGITS - 1 - np.floor(np.log10(np.where(ordinary, size, 1.0)))
        scale = 10.0 ** np.clip(decimals, 0, 22)
        rounded = np.rint(exact * scale) / scale
    return np.where(ordinary, rounded, exact).tolist()  # type: ignore[no-any-return]


def softmax(logits: "NDArray[np.floating[Any]]") -> "NDArray[np.float64]":
    """Return probabilities over the last axis, computed in float64."""
    import numpy as np

    shifted = logits.astype(np.float64) - logits.max(axis=-1, keepdims=True)
    powers: NDArray[np.float64] = np.exp(shifted)
    powers /= powers.sum(axis=-1, keepdims=True)
    return powers


def log_softmax(logits: "NDArray[np.floating[Any]]") -> "NDArray[np.float64]":
    """Return log-probabilities over the last axis, computed in float64."""
    import numpy as np

    shifted = logits.astype(np.float64) - logits.max(axis=-1, keepdims=True)
    logs: NDArray[np.float64] = shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
    return logs


def sigmoid(logits: "NDArray[np.floating[Any]]") -> "NDArray[np.float64]":
    """Return the sigmoid of each logit, computed in float64 without overflow."""
    import numpy as np

    probs: NDArray[np.float64] = np.exp(-np.logaddexp(0.0, -logits.astype(np.float64)))
    return probs
