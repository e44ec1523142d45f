"""The cache of arrays that are computed from corpora, each written once a host and mapped."""

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping
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
            header = npy.header_data_from_array_1_0(contiguous)
            _write_array(directory / f"{name}.npy", header, [contiguous])

    mapped_arrays = cached_files(kind, key, write, _map)
    if mapped_arrays:
        return mapped_arrays
    if arrays is None:
        arrays = make()
    return dict(arrays)


def cached_array(
    kind: str, key: str, name: str, size: int, blocks: Callable[[], Iterator[NDArray[np.int64]]]
) -> NDArray[np.int64]:
    """Return an array that is computed in blocks, as ``cached_arrays`` does.

    The first process writes each block when it is computed, so that it never holds the array.

    Args:
        kind: directory of ``$ZOO_HOME``.
        key: digest of all that the array depends on; empty for an array in memory.
        name: name of the array's file.
        size: number of elements.
        blocks: computes the blocks in order.
    """
    if key:
        header = npy.header_data_from_array_1_0(np.empty(0, np.int64)) | {"shape": (size,)}

        def write(directory: Path) -> None:
            _write_array(directory / f"{name}.npy", header, blocks())

        mapped_arrays = cached_files(kind, key, write, _map)
        if mapped_arrays:
            return mapped_arrays[name]
    return np.concatenate([np.empty(0, np.int64), *blocks()])


def cached_growing_arrays(
    kind: str, key: str, empty_arrays: Arrays, blocks: Callable[[], Iterator[Arrays]]
) -> dict[str, NDArray[Any]]:
    """Return arrays whose sizes are known once their last block is, as ``cached_array`` does.

    Args:
        kind: directory of ``$ZOO_HOME``.
        key: digest of all that the arrays depend on; empty for arrays in memory.
        empty_arrays: arrays of no elements by name, which have the dtypes and the other dimensions.
        blocks: computes successive parts of all arrays, by name.
    """
    if key:

        def write(directory: Path) -> None:
            _write_growing(directory, empty_arrays, blocks())

        mapped_arrays = cached_files(kind, key, write, _map)
        if mapped_arrays:
            return mapped_arrays
    parts = {name: [empty] for name, empty in empty_arrays.items()}
    for block in blocks():
        for name, arrays in parts.items():
            arrays.append(block[name])
    return {name: np.concatenate(arrays) for name, arrays in parts.items()}


def _write_growing(directory: Path, empty_arrays: Arrays, blocks: Iterator[Arrays]) -> None:
    """Write blocks to .npy files, and then their headers once more, with the sizes."""
    sizes = dict.fromkeys(empty_arrays, 0)
    with contextlib.ExitStack() as stack:
        files = {}
        data_starts = {}
        for name, empty in empty_arrays.items():
            file = stack.enter_context((directory / f"{name}.npy").open("wb"))
            npy.write_array_header_1_0(file, npy.header_data_from_array_1_0(empty))
            data_starts[name] = file.tell()
            files[name] = file
        for block in blocks:
            for name, file in files.items():
                file.write(np.ascontiguousarray(block[name]).data)
                sizes[name] += len(block[name])
        for name, file in files.items():
            empty = empty_arrays[name]
            header = npy.header_data_from_array_1_0(empty)
            file.seek(0)
            # NumPy leaves room in the header for a size of any number of digits.
            shape = (sizes[name], *empty.shape[1:])
            npy.write_array_header_1_0(file, header | {"shape": shape})
            assert file.tell() == data_starts[name], "headers have one length"


def _write_array(path: Path, header: dict[str, Any], blocks: Iterable[NDArray[Any]]) -> None:
    """Write an array to an .npy file, of contiguous parts."""
    with path.open("wb") as file:
        npy.write_array_header_1_0(file, header)
        for block in blocks:
            file.write(block.data)  # np.save hides the system's error, such as a full disk.


def _map(directory: Path) -> dict[str, NDArray[Any]]:
    """Return the arrays of a directory, mapped to memory."""
    arrays = {}
    for path in sorted(directory.glob("*.npy")):
        arrays[path.stem] = np.load(path, mmap_mode="r", allow_pickle=False)
    return arrays
