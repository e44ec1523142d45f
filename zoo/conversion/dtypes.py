"""Casts of stored tensors with numpy and ml_dtypes, without torch."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from zoo.errors import UsageError, VerificationError, did_you_mean
from zoo.io.tensors.file_range import blocks
from zoo.io.tensors.formats import DTYPE_NAMES, FLOAT8, FLOATING, STORAGE, widest_dtype

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from zoo.io.tensors.file_array import FileArray

    Array = NDArray[np.generic[Any]]

# The name of a dtype -> its safetensors code.
NAMES = {"float64": "F64", "float32": "F32", "float16": "F16", "bfloat16": "BF16"}
NAMES |= {"fp64": "F64", "fp32": "F32", "fp16": "F16", "bf16": "BF16"}
EXTENDED_CODES = {"BF16", *FLOAT8}  # Only ml_dtypes has a dtype for these codes, not numpy.


def parse_dtype(text: str | None) -> str | None:
    """Return the safetensors code of a dtype name."""
    if text is None:
        return None
    if text not in NAMES:
        raise UsageError(
            f"no dtype is called {text!r}",
            did_you_mean(text, list(NAMES)) or f"known: {', '.join(NAMES)}",
        )
    return NAMES[text]


def cast(array: "Array", stored: str, target: str | None, name: str) -> "Array":
    """Cast an array in memory, rounding to nearest even."""
    if output_dtype(stored, target) == stored:
        return array
    import numpy as np

    values = array.view(numpy_dtype(stored))
    with np.errstate(over="ignore"):
        result = values.astype(numpy_dtype(output_dtype(stored, target)))
    if stored in EXTENDED_CODES:
        values = values.astype(np.float64, copy=False)
    wide_result = result.astype(np.float64, copy=False)
    if not np.array_equal(np.isfinite(values), np.isfinite(wide_result)):
        raise VerificationError(
            f"{name} has values that do not fit into {DTYPE_NAMES[target or stored]}",
            "choose bfloat16 or float32",
        )
    return result.view(STORAGE[output_dtype(stored, target)])


def cast_pieces(
    array: "Array | FileArray", stored: str, target: str | None, name: str
) -> "Iterator[Array | FileArray]":
    """Cast an array in pieces, and yield them."""
    if output_dtype(stored, target) == stored:
        yield array
        return
    for (block,) in blocks(array):
        yield cast(block, stored, target, name)


def widen(arrays: "Sequence[Array | FileArray]", codes: Sequence[str]) -> "Sequence[Any]":
    """Return arrays in the smallest dtype that holds the values of all exactly."""
    if len(set(codes)) == 1:
        return arrays
    import numpy as np

    target = widest_dtype(codes)
    wide_arrays = []
    for array, code in zip(arrays, codes, strict=True):
        wide_arrays.append(cast(np.ascontiguousarray(array), code, target, ""))
    return wide_arrays


def align_codes(written_codes: Sequence[str], count: int) -> list[str]:
    """Return the code in which each of several tensors of the Hub is written.

    Args:
        written_codes: codes of the tensors that are written for a rule. One tensor of ours may be
            several of the Hub's, and copies of tied tensors follow those of the Hub.
        count: number of the Hub's tensors.
    """
    if len(written_codes) == 1:
        return list(written_codes) * count
    return list(written_codes[:count])


def output_dtype(stored: str, target: str | None) -> str:
    """Return the safetensors code of a tensor after the cast; integer dtypes are unchanged."""
    if target and stored in FLOATING:
        return target
    return stored


def numpy_dtype(code: str) -> "np.dtype[Any]":
    """Return the numpy or ml_dtypes dtype for arithmetic on a safetensors code."""
    import numpy as np

    if code not in EXTENDED_CODES:
        return np.dtype(STORAGE[code])
    import ml_dtypes

    dtype: np.dtype[Any] = np.dtype(getattr(ml_dtypes, DTYPE_NAMES[code]))
    return dtype
