"""Listing and decoding of the arrays of an HDF5 file, in a subprocess with limits."""

from collections.abc import Iterator, Mapping
from typing import Any

from zoo.io.limits import MAX_HDF5_CHUNK_BYTES, MAX_HDF5_DEPTH, MAX_HDF5_OBJECTS, MAX_NAME_LENGTH
from zoo.io.sizes import size_problem
from zoo_converters.confined import forbid_files, limit_resources

BLOCK = 1 << 24  # bytes decoded at a time
# numbers of the supported filters: deflate, shuffle, Fletcher-32 and h5py's LZF
FILTERS = {1, 2, 3, 32000}


def list_arrays(path: str, limits: Mapping[str, int]) -> dict[str, tuple[str, Any, int | None]]:
    """Return path inside the file -> dtype, shape and offset of each array."""
    # The offset is the position of its data in the file, or ``None`` if they must be decoded
    with _open(path, limits) as file:
        return {
            name: (array.dtype.str, array.shape, _offset(file, array))
            for name, array in _Walk(file).arrays()
        }


def decode_arrays(path: str, names: list[str], output: int, limits: Mapping[str, int]) -> int:
    """Write arrays in row-major order to an open file; return the number of bytes."""
    import numpy as np

    with _open(path, limits) as file, open(output, "wb", closefd=False) as out:
        for name in names:
            array = file[name]
            for rows in _blocks(array):
                block = np.asarray(array[rows])
                out.write(block.astype(block.dtype.newbyteorder("<"), copy=False).tobytes())
        return out.tell()


def _open(path: str, limits: Mapping[str, int]) -> Any:
    import encodings.ascii  # noqa: F401 (before files are forbidden)

    import h5py

    limit_resources(**limits)
    try:
        file = h5py.File(path, "r", locking=False)
    except Exception as error:
        raise ValueError(f"it is not an HDF5 file, or damaged: {error}") from None
    forbid_files()
    return file


class _Walk:
    """Traversal of the groups of a file, each once."""

    def __init__(self, file: Any) -> None:
        self._file = file
        self._visited: dict[Any, str] = {}

    def arrays(self) -> "Iterator[tuple[str, Any]]":
        """Yield path and dataset of every array."""
        self._visit(self._file, "/")
        return self._group(self._file, "", 0)

    def _group(self, group: Any, prefix: str, depth: int) -> "Iterator[tuple[str, Any]]":
        import h5py

        _require("number of groups inside each other", depth, MAX_HDF5_DEPTH)
        objects = len(self._visited) + len(group)
        _require("number of arrays and groups", objects, MAX_HDF5_OBJECTS)
        for key in group:
            path = prefix + key
            _require(f"length of the name {path[:40]!r}...", len(path), MAX_NAME_LENGTH)
            if not isinstance(group.get(key, getlink=True), h5py.HardLink):
                raise ValueError(f"{path} is a link to another place")
            item = group[key]
            self._visit(item, path)
            if isinstance(item, h5py.Group):
                yield from self._group(item, path + "/", depth + 1)
            elif isinstance(item, h5py.Dataset):
                _check_array(path, item)
                yield path, item
            else:
                raise ValueError(f"{path} is not an array")

    def _visit(self, item: Any, path: str) -> None:
        import h5py

        address = h5py.h5o.get_info(item.id).addr
        first_path = self._visited.setdefault(address, path)
        if first_path != path:
            raise ValueError(f"{path} is the same object as {first_path}")


def _require(quantity: str, value: int, limit: int) -> None:
    problem = size_problem(quantity, value, limit)
    if problem is not None:
        raise ValueError(problem)


def _check_array(path: str, array: Any) -> None:
    """Check that an array is stored in this file with supported filters."""
    settings = array.id.get_create_plist()
    if array.is_virtual or settings.get_external_count():
        raise ValueError(f"{path} keeps its data in another file")
    if array.shape is None or array.dtype.kind not in "biuf":
        raise ValueError(f"{path} holds {array.dtype!s:.100}, not numbers")
    if array.nbytes and not array.id.get_storage_size():
        raise ValueError(f"{path} has a shape but no data")
    for number in range(settings.get_nfilters()):
        if settings.get_filter(number)[0] not in FILTERS:
            raise ValueError(f"{path} is stored with an unknown filter")
    if array.chunks is not None:
        size = array.dtype.itemsize
        for length in array.chunks:
            size *= length
        _require(f"size of a chunk of {path} in bytes", size, MAX_HDF5_CHUNK_BYTES)


def _offset(file: Any, array: Any) -> int | None:
    """Return the position of an array's data in the file, if they are stored as in numpy."""
    # A file may define its own number types, such as floats of other widths, which h5py converts.
    # Versions of the library differ in whether offsets include a user block
    import h5py

    offset: int | None = array.id.get_offset()
    plain = array.id.get_type().equal(h5py.h5t.py_create(array.dtype, logical=True))
    return None if array.chunks is not None or not plain or file.userblock_size else offset


def _blocks(array: Any) -> "Iterator[Any]":
    """Yield slices of rows that cover an array, each of whole chunks."""
    if not array.shape or not array.size:
        yield ()
        return
    chunk = array.chunks[0] if array.chunks else 1
    row_bytes = max(1, array.nbytes // array.shape[0])
    rows = max(1, BLOCK // row_bytes // chunk) * chunk
    for start in range(0, array.shape[0], rows):
        yield slice(start, start + rows)
