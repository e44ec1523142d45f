"""Listing and decoding the arrays of an HDF5 file with h5py, in a process with limits."""

from collections.abc import Iterator, Mapping
from typing import Any

from zoo.io.limits import (
    MAX_HDF5_CHUNK_BYTES,
    MAX_HDF5_DEPTH,
    MAX_HDF5_OBJECTS,
    MAX_NAME_LENGTH,
)
from zoo_converters.confined import forbid_files, limit_resources

BLOCK = 1 << 24  # bytes that are decoded at once
# filters that change bytes, by number: deflate, shuffle, Fletcher-32 and h5py's own LZF
FILTERS = {1, 2, 3, 32000}


def list_arrays(path: str, limits: Mapping[str, int]) -> dict[str, tuple[str, Any, int | None]]:
    """Return dtype, shape and offset of each array by its path inside the file.

    The offset is that of its bytes in the file, or ``None`` if they must be decoded.

    Raises:
        ValueError: the file holds something else than arrays of numbers that lie in it.
    """
    with _open(path, limits) as file:
        return {
            name: (array.dtype.str, array.shape, _offset(file, array))
            for name, array in _Walk(file).arrays()
        }


def decode_arrays(path: str, names: list[str], output: int, limits: Mapping[str, int]) -> int:
    """Write arrays, as their bytes in row-major order, to an open file; return their size."""
    import numpy as np

    with _open(path, limits) as file, open(output, "wb", closefd=False) as out:
        for name in names:
            array = file[name]
            for rows in _blocks(array):
                block = np.asarray(array[rows])
                out.write(block.astype(block.dtype.newbyteorder("<"), copy=False).tobytes())
        return out.tell()


def _open(path: str, limits: Mapping[str, int]) -> Any:
    import encodings.ascii  # noqa: F401 (before no more files can be opened)

    import h5py

    limit_resources(**limits)
    try:
        file = h5py.File(path, "r", locking=False)
    except Exception as error:
        raise ValueError(f"it is no HDF5 file, or damaged: {error}") from None
    forbid_files()
    return file


class _Walk:
    """Visits the groups of a file, each once."""

    def __init__(self, file: Any) -> None:
        self._file = file
        self._visited: dict[Any, str] = {}

    def arrays(self) -> "Iterator[tuple[str, Any]]":
        """Yield every array by its path.

        Raises:
            ValueError: something leads elsewhere, or there is more than a limit.
        """
        self._visit(self._file, "/")
        return self._group(self._file, "", 0)

    def _group(self, group: Any, prefix: str, depth: int) -> "Iterator[tuple[str, Any]]":
        import h5py

        if depth > MAX_HDF5_DEPTH:
            raise ValueError(f"more than {MAX_HDF5_DEPTH} groups inside each other")
        if len(self._visited) + len(group) > MAX_HDF5_OBJECTS:
            raise ValueError(f"it holds more than {MAX_HDF5_OBJECTS:,} arrays and groups")
        for key in group:
            path = prefix + key
            if len(path) > MAX_NAME_LENGTH:
                raise ValueError(f"the name {path[:40]!r}... has {len(path)} characters")
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
                raise ValueError(f"{path} is no array")

    def _visit(self, item: Any, path: str) -> None:
        import h5py

        address = h5py.h5o.get_info(item.id).addr
        other = self._visited.setdefault(address, path)
        if other != path:
            raise ValueError(f"{path} is the same object as {other}")


def _check_array(path: str, array: Any) -> None:
    """Check that an array lies in this file, and is stored in a way that is known.

    Raises:
        ValueError: it is not.
    """
    settings = array.id.get_create_plist()
    if array.is_virtual or settings.get_external_count():
        raise ValueError(f"{path} keeps its data in another file")
    if array.shape is None or array.dtype.kind not in "biuf":
        raise ValueError(f"{path} holds {array.dtype!s:.100}, where numbers are read")
    if array.nbytes and not array.id.get_storage_size():
        raise ValueError(f"{path} has a shape and no data")
    for number in range(settings.get_nfilters()):
        if settings.get_filter(number)[0] not in FILTERS:
            raise ValueError(f"{path} is stored with a filter that is not known")
    if array.chunks is not None:
        size = array.dtype.itemsize
        for length in array.chunks:
            size *= length
        if size > MAX_HDF5_CHUNK_BYTES:
            raise ValueError(
                f"{path} is stored in chunks of {size:,} bytes, and at most "
                f"{MAX_HDF5_CHUNK_BYTES:,} are accepted"
            )


def _offset(file: Any, array: Any) -> int | None:
    """Return where in the file an array's bytes are, if they lie there as numpy has them.

    A file may define numbers of its own, such as floats of other widths, which h5py translates.
    Whether offsets count from behind a block of the user's depends on the library's version.
    """
    import h5py

    offset: int | None = array.id.get_offset()
    plain = array.id.get_type().equal(h5py.h5t.py_create(array.dtype, logical=True))
    return None if array.chunks is not None or not plain or file.userblock_size else offset


def _blocks(array: Any) -> "Iterator[Any]":
    """Yield selections of whole rows that cover an array, each of whole chunks."""
    if not array.shape or not array.size:
        yield ()
        return
    chunk = array.chunks[0] if array.chunks else 1
    row_bytes = max(1, array.nbytes // array.shape[0])
    rows = max(1, BLOCK // row_bytes // chunk) * chunk
    for start in range(0, array.shape[0], rows):
        yield slice(start, start + rows)
