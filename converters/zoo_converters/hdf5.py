"""HDF5 files of plain arrays, read and written with h5py, an optional dependency.

Links to other files and external data are refused. Tensor names are paths inside the file, such as
``group/array``.
"""

import importlib.util
from collections.abc import Mapping, Sequence
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from zoo.errors import UsageError, VerificationError
from zoo.io.files import open_regular
from zoo.io.limits import MAX_STORAGE_USES
from zoo.io.sizes import check_size
from zoo.io.tensors.file_array import DataFile, FileArray
from zoo.io.tensors.formats import STORAGE, Format, TensorInfo, TensorReader
from zoo.io.tensors.safetensors import LFS_POINTER, METADATA, is_sound_name, is_sound_shape
from zoo.overrides import override
from zoo_converters.confined import call_confined
from zoo_converters.hdf5_arrays import decode_arrays, list_arrays
from zoo_converters.scratch import ScratchFile

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from zoo.io.progress import Advance
    from zoo.io.tensors.formats import TensorToWrite

    Array = NDArray[np.generic[Any]]

NAME = "weights.hdf5"
MEMORY_BYTES = 192 << 20  # Memory for the library in addition to its code.
WALK_SECONDS = 10
BYTES_PER_SECOND = 20_000_000  # The rate of decompression on a slow machine.
LFS_REMEDY = "run `git lfs pull`"
# Dtypes that numpy lacks are left out: stored as integers, they would be read back as integers.
PLAIN = {code: dtype for code, dtype in STORAGE.items() if not code.startswith(("BF", "F8"))}


class Hdf5(Format):
    """Format of one ``.hdf5`` file; of several, the one whose name ends in ``weights.hdf5``.

    Keras files (``.h5``) are not supported.
    """

    name: ClassVar[str] = "hdf5"

    @override
    def find(self, names: Sequence[str]) -> tuple[str, ...]:
        files = [name for name in names if name.endswith(".hdf5") and "/" not in name]
        if len(files) > 1:
            files = [name for name in files if name.endswith(NAME)]
        return tuple(files) if len(files) == 1 else ()

    @override
    def open(self, directory: Path, names: Sequence[str]) -> TensorReader:
        return Hdf5Reader(directory / names[0])

    @override
    def write(
        self, directory: Path, outputs: "Sequence[TensorToWrite]", advance: "Advance"
    ) -> list[Path]:
        path = directory / f"lm_{NAME}"
        _require_h5py(path.name)
        import h5py
        import numpy as np

        with h5py.File(path, "w", libver=("earliest", "v108")) as file:
            for out in outputs:
                if out.info.dtype not in PLAIN:
                    raise UsageError(
                        f"HDF5 cannot hold {out.name} in {out.info.dtype}", "give --dtype float32"
                    )
                pieces = [piece.reshape(-1) for piece in out.chunks()]
                file.create_dataset(out.name, data=np.concatenate(pieces).reshape(out.info.shape))
                advance(out.info.nbytes)
        return [path]


class Hdf5Reader(TensorReader):
    """Reader of an HDF5 file.

    The HDF5 library is written in C and has a history of memory errors, so it runs in a subprocess
    with limits. Arrays that are stored uncompressed are read from the file; the subprocess decodes
    the others to a temporary file when the first of them is read.
    """

    def __init__(self, path: Path) -> None:
        self.files = (path,)
        _require_h5py(str(path))
        with open_regular(path) as file:
            self._size = file.seek(0, 2)
            if file.seek(0) == 0 and file.read(1 << 10).startswith(LFS_POINTER):
                raise VerificationError(
                    f"{path} is not an HDF5 file but a Git LFS pointer", LFS_REMEDY
                )
        descriptions = call_confined(
            list_arrays,
            path,
            {"path": str(path.absolute())},
            memory=MEMORY_BYTES,
            seconds=WALK_SECONDS,
        )
        self._arrays = {name: _Array(*values) for name, values in descriptions.items()}
        self.tensors: Mapping[str, TensorInfo] = {
            name: _info(path, name, array) for name, array in self._arrays.items()
        }
        total = sum(info.nbytes for info in self.tensors.values())
        limit = MAX_STORAGE_USES * max(self._size, 4096)
        check_size(path, "size of its arrays in bytes", total, limit)
        for name, array in self._arrays.items():
            if array.offset is not None:
                end = array.offset + self.tensors[name].nbytes
                if array.offset < 0 or end > self._size:
                    raise VerificationError(f"{path} is cut short: {name} extends past its end")
        self._file = DataFile(path, self._size)
        self._decoded: _Decoded | None = None

    @override
    def read(self, name: str) -> "Array":
        array = self.lazy(name)
        if isinstance(array, FileArray):
            array = array.read()
        array.flags.writeable = False
        return array

    @override
    def lazy(self, name: str) -> "Array | FileArray":
        import numpy as np

        info = self.tensors[name]
        array = self._arrays[name]
        code = STORAGE[info.dtype]
        if not info.nbytes:
            return np.empty(info.shape, code)
        if array.offset is None:
            if self._decoded is None:
                self._decoded = _Decoded(self.files[0], self._sizes_to_decode())
            return self._decoded.lazy(name, code, info.shape)
        file_array = FileArray.stored(self._file, array.dtype, info.shape, array.offset)
        if array.dtype == code:
            return file_array
        return file_array.read().astype(code)  # The file has the other byte order.

    def _sizes_to_decode(self) -> dict[str, int]:
        """Return name -> size in bytes of the arrays that have to be decoded."""
        sizes = {}
        for name, array in self._arrays.items():
            if array.offset is None and self.tensors[name].nbytes:
                sizes[name] = self.tensors[name].nbytes
        return sizes

    @override
    def close(self) -> None:
        if self._decoded is not None:
            self._decoded.scratch.close()


class _Array(NamedTuple):
    """Description of an array by the subprocess; ``offset`` is ``None`` if it must be decoded."""

    dtype: str
    shape: tuple[int, ...]
    offset: int | None


class _Decoded:
    """Decoded arrays, one after the other in a temporary file."""

    def __init__(self, path: Path, sizes: Mapping[str, int]) -> None:
        total = sum(sizes.values())
        self._offsets = dict(zip(sizes, accumulate(sizes.values(), initial=0), strict=False))
        self.scratch = ScratchFile(total)
        output = self.scratch.file.fileno()
        bytes_written = call_confined(
            decode_arrays,
            path,
            {"path": str(path.absolute()), "names": list(sizes), "output": output},
            memory=MEMORY_BYTES,
            seconds=WALK_SECONDS + total // BYTES_PER_SECOND,
            output=output,
        )
        if bytes_written != total:
            raise VerificationError(f"{path}: its arrays do not have the size that it states")

    def lazy(self, name: str, code: str, shape: tuple[int, ...]) -> FileArray:
        return self.scratch.lazy(code, shape, self._offsets[name])


def _require_h5py(purpose: str) -> None:
    if importlib.util.find_spec("h5py") is None:
        raise UsageError(f"{purpose} needs h5py", "pip install h5py")


def _info(path: Path, name: str, array: _Array) -> TensorInfo:
    """Return dtype and shape of an array."""
    if not is_sound_name(name) or name == METADATA:
        raise VerificationError(f"{path}: {name!r:.100} cannot be the name of a tensor")
    for code, dtype in PLAIN.items():
        if dtype[1:] == array.dtype[1:]:
            info = TensorInfo(code, tuple(array.shape))
            if is_sound_shape(info):
                return info
    raise VerificationError(f"{path}: {name} holds {array.dtype}, not numbers")
