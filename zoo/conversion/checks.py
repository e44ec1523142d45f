"""Checks of a conversion: equal bits, constants, and sources that do not change."""

import contextlib
import os
import stat
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from zoo.conversion.dtypes import cast, numpy_dtype, output_dtype, widen
from zoo.errors import VerificationError
from zoo.io.tensors.file_range import blocks, file_range_of, ranges_equal
from zoo.io.tensors.formats import FLOATING, STORAGE, TensorInfo, TensorReader, TensorToWrite
from zoo.weights import Constant

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from zoo.io.tensors.file_array import FileArray

    NumpyArray = NDArray[np.generic[Any]]
    Array = NumpyArray | FileArray
    Convert = Callable[[NumpyArray], NumpyArray]


def bitwise_equal(first: "Array", second: "Array", convert: "Convert | None" = None) -> bool:
    """Return ``True`` if two arrays have equal shapes and bytes; NaN equals itself, -0 is not 0."""
    import numpy as np

    if first.shape != second.shape:
        return False
    for first_block, second_block in blocks(first, second):
        if convert is not None:
            second_block = convert(second_block)
        if first_block.dtype.itemsize != second_block.dtype.itemsize:
            return False
        if not np.array_equal(_words(first_block), _words(second_block)):
            return False
    return True


def _words(array: "NumpyArray") -> "NumpyArray":
    """View contiguous bytes as 64-bit words if their number allows it, which compares faster."""
    import numpy as np

    flat = array.reshape(-1).view(np.uint8)
    return flat.view(np.uint64) if flat.size % 8 == 0 else flat


def equal_values(first: "Array", first_code: str, second: "Array", second_code: str) -> bool:
    """Return whether two arrays are equal bit for bit, in the wider dtype if they differ in it."""
    if first_code == second_code:
        return bitwise_equal(first, second)
    if not {first_code, second_code} <= FLOATING:
        return False
    return bitwise_equal(*widen((first, second), (first_code, second_code)))


def require_bitwise_equal(
    name: str, first: "Array", second: "Array", convert: "Convert | None" = None
) -> None:
    """Raise an error if a tensor of the Hub was not rebuilt exactly from the written files."""
    first_range = file_range_of(first)
    second_range = file_range_of(second)
    if convert or first_range is None or second_range is None or first.shape != second.shape:
        is_equal = bitwise_equal(first, second, convert)
    else:
        is_equal = ranges_equal(first_range, second_range)
    if not is_equal:
        raise VerificationError(
            f"the round trip of {name} is not exact",
            "the source changed meanwhile, or this is a fault of the family's rules",
        )


# code -> largest distance of neighbours, relative to their value
SPACING = {"F16": 2**-10, "BF16": 2**-7, "F8_E4M3": 2**-3, "F8_E5M2": 2**-2}


def check_constant(reader: TensorReader, name: str, constant: Constant, location: str) -> None:
    """Check that a tensor has the values that follow from the configuration."""
    import numpy as np

    stored_dtype = reader.tensors[name].dtype
    values: Any = constant.values()
    if values.dtype.kind == "f" and stored_dtype in FLOATING:
        rounded = cast(values.astype(np.float32), "F32", stored_dtype, name)
        values = rounded.view(numpy_dtype(stored_dtype)).astype(np.float64)
    actual = reader.read(name).view(numpy_dtype(stored_dtype)).astype(np.float64)
    tolerance: Any = constant.tolerance
    if tolerance and stored_dtype in SPACING:  # rounded to a neighbour
        tolerance = tolerance + np.abs(values) * SPACING[stored_dtype]
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

    def values() -> "Iterator[NumpyArray]":
        array = constant.values()
        yield cast(array, "F32", dtype, name) if array.dtype.kind == "f" else array

    array = constant.values()
    code = output_dtype("F32", dtype) if array.dtype.kind == "f" else codes[array.dtype]
    return TensorToWrite(name, TensorInfo(code, constant.shape), values)


FileState = tuple[int, ...]


class FileStates:
    """States of the files of directories at one moment."""

    # A file is unchanged if its inode, size, modification time and change time are. The change time
    # is set by the kernel on every write and cannot be set by a program.

    def __init__(self, directories: Iterable[Path]) -> None:
        self._states: dict[Path, FileState] = {}
        for directory in directories:
            for path in (*directory.glob("*"), *directory.glob("*/*.json")):
                with contextlib.suppress(OSError):  # removed meanwhile, or unreadable
                    self._states[path] = _state(path)

    def check(self, paths: Iterable[Path]) -> None:
        """Check that files did not change."""
        for path in paths:
            try:
                unchanged = self._states.get(path, state := _state(path)) == state
            except OSError:
                unchanged = False
            if not unchanged:
                raise VerificationError(
                    f"{path} was changed while it was converted", "try again when it is complete"
                )


def _state(path: Path) -> FileState:
    status = os.stat(path)
    place = (status.st_dev, status.st_ino)
    if not stat.S_ISREG(status.st_mode):
        return place
    return (*place, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
