"""Tensors that follow from the configuration: comparison with a source, and writing."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from zoo.conversion.dtypes import cast, numpy_dtype, output_dtype
from zoo.errors import VerificationError
from zoo.io.tensors.formats import FLOATING, STORAGE, TensorInfo, TensorReader, TensorToWrite
from zoo.weights import Constant

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Array = NDArray[np.generic[Any]]

# code -> largest distance of neighbours, relative to their value
SPACING = {"F16": 2**-10, "BF16": 2**-7, "F8_E4M3": 2**-3, "F8_E5M2": 2**-2}


def check_constant(reader: TensorReader, name: str, constant: Constant, location: str) -> None:
    """Check that a tensor has the values that follow from the configuration."""
    import numpy as np

    stored = reader.tensors[name].dtype
    values: Any = constant.values()
    if values.dtype.kind == "f" and stored in FLOATING:
        rounded = cast(values.astype(np.float32), "F32", stored, name)
        values = rounded.view(numpy_dtype(stored)).astype(np.float64)
    actual = reader.read(name).view(numpy_dtype(stored)).astype(np.float64)
    tolerance: Any = constant.tolerance
    if tolerance and stored in SPACING:  # rounded to a neighbour
        tolerance = tolerance + np.abs(values) * SPACING[stored]
    if not (np.abs(actual - values) <= tolerance).all():  # NaN also differs
        difference = np.abs(actual - values).max()
        raise VerificationError(
            f"{location}: {name} ({constant.reason}) differs by up to {difference:.1e} from what "
            "the configuration gives",
            "the tensor and config.json contradict each other; nothing was written",
        )


def constant_to_write(name: str, constant: Constant, dtype: str) -> TensorToWrite:
    """Return a constant as a tensor to write."""
    import numpy as np

    codes = {np.dtype(storage): code for code, storage in STORAGE.items() if code not in FLOATING}

    def values() -> "Iterator[Array]":
        array = constant.values()
        yield cast(array, "F32", dtype, name) if array.dtype.kind == "f" else array

    array = constant.values()
    code = output_dtype("F32", dtype) if array.dtype.kind == "f" else codes[array.dtype]
    return TensorToWrite(name, TensorInfo(code, constant.shape), values)
