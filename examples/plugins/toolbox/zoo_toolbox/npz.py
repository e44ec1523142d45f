"""Checkpoints in ``model.npz``, an archive of NumPy arrays, as ``numpy.savez`` writes it."""

import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from zoo.errors import SourceError, UsageError, VerificationError
from zoo.io.tensors.formats import STORAGE, Format, TensorInfo, TensorReader, TensorToWrite

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from zoo.io.progress import Advance

FILE = "model.npz"
DTYPES = {np.dtype(storage): code for code, storage in STORAGE.items() if code in ("F16", "F32")}
MAX_BYTES = 1 << 34  # of the arrays: an archive may be far smaller than its contents


class Npz(Format):
    """The format: tensors by their names on the Hub, in half or single precision."""

    name: ClassVar[str] = "npz"

    def find(self, names: Sequence[str]) -> tuple[str, ...]:
        """Return the archive, if it is there."""
        return (FILE,) if FILE in names else ()

    def open(self, directory: Path, names: Sequence[str]) -> TensorReader:
        """See ``Format``."""
        return NpzReader(directory / names[0])

    def write(
        self, directory: Path, outputs: Sequence[TensorToWrite], advance: "Advance"
    ) -> list[Path]:
        """Write an archive without compression; see ``Format``.

        Raises:
            UsageError: a tensor is neither in half nor in single precision.
        """
        path = directory / FILE
        with zipfile.ZipFile(path, "w") as archive:
            for tensor in outputs:
                if tensor.info.dtype not in DTYPES.values():
                    raise UsageError(f"{FILE} cannot store {tensor.name} in {tensor.info.dtype}")
                parts = [np.asarray(part).reshape(-1) for part in tensor.chunks()]
                with archive.open(f"{tensor.name}.npy", "w", force_zip64=True) as file:
                    array = np.concatenate(parts).reshape(tensor.info.shape)
                    np.lib.format.write_array(file, array, allow_pickle=False)
                advance(tensor.info.nbytes)
        return [path]


class NpzReader(TensorReader):
    """Reader of an archive.

    Args:
        path: path of the archive.

    Raises:
        SourceError: the file cannot be read.
        VerificationError: it is damaged, too large, or has values that are not floats.
    """

    def __init__(self, path: Path) -> None:
        self.files = (path,)
        try:
            self._archive = zipfile.ZipFile(path)
        except OSError as error:
            raise SourceError(f"{path}: {error.strerror}") from error
        except zipfile.BadZipFile as error:
            raise VerificationError(f"{path} is damaged: {error}", "fetch it again") from error
        if sum(member.file_size for member in self._archive.infolist()) > MAX_BYTES:
            raise VerificationError(f"{path} is larger than {MAX_BYTES >> 30} GB")
        self.tensors = {
            name.removesuffix(".npy"): self._info(name) for name in self._archive.namelist()
        }

    def _info(self, name: str) -> TensorInfo:
        """Return dtype and shape from the header of an array."""
        try:
            with self._archive.open(name) as file:
                version = np.lib.format.read_magic(file)
                read = np.lib.format.read_array_header_1_0 if version == (1, 0) else None
                shape, by_column, dtype = read(file) if read else ((), True, None)
        except (ValueError, zipfile.BadZipFile) as error:
            raise VerificationError(f"{self.files[0]}: {name} is damaged: {error}") from error
        if by_column or dtype not in DTYPES:
            raise VerificationError(f"{self.files[0]}: {name} is not an array of floats by row")
        return TensorInfo(DTYPES[dtype], shape)

    def read(self, name: str) -> "NDArray[np.generic[Any]]":
        """See ``TensorReader``."""
        try:
            with self._archive.open(f"{name}.npy") as file:
                array: NDArray[Any] = np.lib.format.read_array(file, allow_pickle=False)
        except (ValueError, zipfile.BadZipFile) as error:
            raise VerificationError(f"{self.files[0]}: {name} is damaged: {error}") from error
        array.flags.writeable = False
        return array

    def close(self) -> None:
        """See ``TensorReader``."""
        self._archive.close()
