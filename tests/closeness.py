"""Numbers that two implementations compute, compared with what float32 and float64 allow."""

from typing import Any

import numpy as np

# Of the largest magnitude. Both sides add in orders of their own, which random weights amplify in
# float32; float64 shows that nothing else differs.
TOLERANCE = {"float32": 1e-5, "float64": 1e-9}


def assert_same(found: Any, expected: Any, dtype: str = "float32", *, size: float = 0.0) -> None:
    """Check that numbers computed in a dtype differ by the rounding of their magnitude at most.

    ``size`` is the magnitude of what is subtracted, if that is larger than the result.
    """
    found, expected = np.asarray(found, np.float64), np.asarray(expected, np.float64)
    assert found.shape == expected.shape
    error = TOLERANCE[dtype] * float(np.abs(expected).max(initial=size))
    largest = float(np.abs(found - expected).max(initial=0))
    assert largest <= error, f"they differ by {largest:.1e}, more than {error:.1e}"


def assert_within(found: Any, expected: Any, error: float = 1e-6) -> None:
    """Check that numbers differ by at most an error, relative to magnitudes over 1."""
    found, expected = np.asarray(found, np.float64), np.asarray(expected, np.float64)
    assert found.shape == expected.shape
    error *= float(np.abs(expected).max(initial=1))
    largest = float(np.abs(found - expected).max(initial=0))
    assert largest <= error, f"they differ by {largest:.1e}, more than {error:.1e}"


def subtracted(vectors: Any, function: str) -> float:
    """Return the magnitude of what a distance of vectors, (n, hidden), subtracts."""
    order = {"euclidean": 2, "manhattan": 1}.get(function)
    if order is None:
        return 0.0
    return 2 * float(np.linalg.norm(np.asarray(vectors), order, axis=-1).max())
