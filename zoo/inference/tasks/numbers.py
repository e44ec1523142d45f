"""Numbers for JSON: as short as they can be and read back to the same bits."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

DIGITS = 9  # significant decimal digits that tell every float32 from its neighbours


def short_floats(array: "NDArray[np.floating[Any]]") -> list[Any]:
    """Return an array as nested lists of floats, float32 values with 9 significant digits.

    A float32 becomes the double nearest to its 9-digit decimal, which prints with 9 digits
    instead of 17 and rounds to the same float32. Doubles stay as they are.
    """
    import numpy as np

    if array.dtype != np.float32:
        return list(array.tolist())
    exact = array.astype(np.float64)
    size = np.abs(exact)
    # Powers of ten up to 10**22 are exact doubles, and so are the 9-digit integers: then the
    # quotient is the double nearest to the decimal. Values outside keep all their digits.
    ordinary = (size > 1e-12) & (size < 1e8)
    with np.errstate(divide="ignore", invalid="ignore"):
        places = DIGITS - 1 - np.floor(np.log10(np.where(ordinary, size, 1.0)))
        scale = 10.0 ** np.clip(places, 0, 22)
        rounded = np.rint(exact * scale) / scale
    return list(np.where(ordinary, rounded, exact).tolist())


def softmax(logits: "NDArray[np.floating[Any]]") -> "NDArray[np.float64]":
    """Return probabilities over the last axis, computed in float64."""
    import numpy as np

    shifted = logits.astype(np.float64) - logits.max(axis=-1, keepdims=True)
    powers: NDArray[np.float64] = np.exp(shifted)
    powers /= powers.sum(axis=-1, keepdims=True)
    return powers


def sigmoid(logits: "NDArray[np.floating[Any]]") -> "NDArray[np.float64]":
    """Return the probability of each logit by itself, computed in float64 without overflow."""
    import numpy as np

    chances: NDArray[np.float64] = np.exp(-np.logaddexp(0.0, -logits.astype(np.float64)))
    return chances
