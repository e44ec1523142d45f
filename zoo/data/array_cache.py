"""Cache of arrays that are computed from a corpus: made once, then mapped by every process."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from zoo.io.cached_files import cached_files

Arrays = Mapping[str, NDArray[Any]]


def cached_arrays(kind: str, key: str, make: Callable[[], Arrays]) -> dict[str, NDArray[Any]]:
    """Return arrays by name, made and written by the first process that needs them.

    Other processes wait for it and map its files. Damaged files are replaced. If the cache cannot
    be written, each process makes its own arrays in memory.
    """
    arrays: Arrays | None = None

    def write(directory: Path) -> None:
        nonlocal arrays
        arrays = make()
        for name, array in arrays.items():
            contiguous = np.ascontiguousarray(array)
            with (directory / f"{name}.npy").open("wb") as file:
                npy.write_array_header_1_0(file, npy.header_data_from_array_1_0(contiguous))
                # np.save hides the system's error, such as a full disk.
                file.write(contiguous.data)

    mapped_arrays = cached_files(kind, key, write, _map)
    if mapped_arrays:
        return mapped_arrays
    if arrays is None:
        arrays = make()
    return dict(arrays)


def _map(directory: Path) -> dict[str, NDArray[Any]]:
    """Return the arrays of a directory, mapped to memory."""
    arrays = {}
    for path in sorted(directory.glob("*.npy")):
        arrays[path.stem] = np.load(path, mmap_mode="r", allow_pickle=False)
    return arrays
