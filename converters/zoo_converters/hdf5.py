"""HDF5 files of plain arrays, read and written with h5py, which is an optional extra.

Only arrays that lie in the file itself are read: links to other files, and data kept outside,
are refused. Names are paths inside the file, such as ``group/array``.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from zoo.errors import UsageError, VerificationError
from zoo.formats import STORAGE, Format, TensorInfo, TensorReader
from zoo.io.file_array import FileArray
from zoo.mapped import MappedFile

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from zoo.convert.write import Output
    from zoo.progress import Advance

    Array = NDArray[np.generic[Any]]

NAME = "weights.hdf5"
MAX_DEPTH = 32  # groups inside each other
DAMAGE = (OSError, RuntimeError, KeyError, ValueError, TypeError)  # what h5py raises over a file
# those that numpy has no dtype for travel as integers, and would come back as such
PLAIN = {code: dtype for code, dtype in STORAGE.items() if not code.startswith(("BF", "F8"))}


class Hdf5(Format):
    """One ``.hdf5`` file; of several, the one whose name ends in ``weights.hdf5``.

    Keras files (``.h5``) are not among them.
    """

    name: ClassVar[str] = "hdf5"

    def find(self, names: Sequence[str]) -> tuple[str, ...]:
        """See ``Format``."""
        found = [name for name in names if name.endswith(".hdf5") and "/" not in name]
        if len(found) > 1:
            found = [name for name in found if name.endswith(NAME)]
        return tuple(found) if len(found) == 1 else ()

    def open(self, directory: Path, names: Sequence[str]) -> TensorReader:
        """See ``Format``.

        Raises:
            UsageError: h5py is not installed.
        """
        return Hdf5Reader(directory / names[0])

    def write(self, directory: Path, outputs: "Sequence[Output]", advance: "Advance") -> list[Path]:
        """See ``Format``."""
        import numpy as np

        path = directory / f"lm_{NAME}"
        with _h5py(path.name).File(path, "w", libver=("earliest", "v108")) as file:
            for out in outputs:
                if out.info.dtype not in PLAIN:
                    raise UsageError(
                        f"HDF5 cannot hold {out.name} in {out.info.dtype}", "give --dtype float32"
                    )
                pieces = [piece.reshape(-1) for piece in out.pieces()]
                file.create_dataset(out.name, data=np.concatenate(pieces).reshape(out.info.shape))
                advance(out.info.nbytes)
        return [path]


class Hdf5Reader(TensorReader):
    """An open HDF5 file.

    Args:
        path: the file.

    Raises:
        UsageError: h5py is not installed.
        VerificationError: the file is damaged, or holds something else than arrays of numbers.
    """

    def __init__(self, path: Path) -> None:
        self.files = (path,)
        self._path = path
        self._bytes = MappedFile(path, path.stat().st_size if path.is_file() else 0)
        h5py = _h5py(str(path))
        try:
            self._file = h5py.File(path, "r")
        except DAMAGE as error:
            raise VerificationError(f"{path} is no HDF5 file, or damaged: {_line(error)}") from None
        try:
            arrays = dict(_arrays(h5py, self._file))
            self._offsets = {name: _offset(array) for name, array in arrays.items()}
            self.tensors: Mapping[str, TensorInfo] = {
                name: TensorInfo(_code(name, array), tuple(array.shape))
                for name, array in arrays.items()
            }
        except DAMAGE as error:
            self._file.close()
            raise VerificationError(f"{path}: {_line(error)}") from None

    def read(self, name: str) -> "Array":
        """See ``TensorReader``; what is no plain stretch of the file is read into memory.

        Raises:
            VerificationError: it cannot be read.
        """
        import numpy as np

        info = self.tensors[name]
        offset = self._offsets[name]
        if offset is not None:
            count = info.nbytes // int(STORAGE[info.dtype][2:])
            return self._bytes.array(STORAGE[info.dtype], count, offset).reshape(info.shape)
        try:
            found: Array = np.asarray(self._file[name][()])
        except DAMAGE as error:
            raise VerificationError(f"{self._path}: {name}: {_line(error)}") from None
        found = found.astype(STORAGE[info.dtype], copy=False)  # of the other byte order
        found.flags.writeable = False
        return found

    def lazy(self, name: str) -> "Array | FileArray":
        """See ``TensorReader``."""
        info, offset = self.tensors[name], self._offsets[name]
        if offset is None:
            return self.read(name)
        return self._bytes.lazy(STORAGE[info.dtype], info.shape, offset)

    def release(self, name: str) -> None:
        """See ``TensorReader``."""
        offset = self._offsets[name]
        if offset is not None:
            self._bytes.release(offset, self.tensors[name].nbytes)

    def close(self) -> None:
        """See ``TensorReader``."""
        self._bytes.close()
        self._file.close()


def _h5py(what: str) -> Any:
    try:
        import h5py
    except ImportError as error:
        raise UsageError(f"{what} needs h5py: {error}", "pip install 'plm-zoo[hdf5]'") from error
    return h5py


def _arrays(h5py: Any, group: Any, prefix: str = "", depth: int = 0) -> Iterator[tuple[str, Any]]:
    """Yield every array by its path.

    Raises:
        ValueError: something leads elsewhere, or groups are nested too deep to be meant.
    """
    if depth > MAX_DEPTH:
        raise ValueError(f"more than {MAX_DEPTH} groups inside each other, at {prefix[:100]}")
    for key in group:
        path = prefix + key
        if not isinstance(group.get(key, getlink=True), h5py.HardLink):
            raise ValueError(f"{path} is a link to another place")
        item = group[key]
        if isinstance(item, h5py.Group):
            yield from _arrays(h5py, item, path + "/", depth + 1)
        elif not isinstance(item, h5py.Dataset):
            raise ValueError(f"{path} is no array")
        elif item.is_virtual or item.external:
            raise ValueError(f"{path} keeps its data in another file")
        else:
            yield path, item


def _code(name: str, array: Any) -> str:
    """Return the safetensors code of an array's elements.

    Raises:
        ValueError: they are no plain numbers.
    """
    kind = array.dtype.str[1:]
    for code, dtype in PLAIN.items():
        if dtype[1:] == kind and array.shape is not None:
            return code
    raise ValueError(f"{name} holds {array.dtype}, where numbers are read")


def _offset(array: Any) -> int | None:
    """Return where in the file an array's bytes are as numpy has them, if they are.

    Those in chunks or in the other byte order are not, and offsets would begin behind a block of
    the user's. One that reaches behind the end of the file is left to the library to refuse.
    """
    offset: int | None = array.id.get_offset()
    plain = array.dtype.str in PLAIN.values() and array.size and not array.file.userblock_size
    if offset is None or not plain:
        return None
    whole = offset + array.nbytes <= Path(array.file.filename).stat().st_size
    return offset if whole and array.chunks is None else None


def _line(error: Exception) -> str:
    return " ".join(str(error).split())[:200]
