"""Interface of file formats: readers of named tensors, and the formats that plugins provide."""

# Tensors are numpy arrays in *storage* dtype: dtypes that numpy lacks are stored as unsigned
# integers of the same width (bfloat16 as uint16, fp8 as uint8), and ``TensorInfo.dtype`` has the
# actual dtype.

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self

from zoo.errors import UsageError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from zoo.io.progress import Advance
    from zoo.io.tensors.file_array import FileArray

    Array = NDArray[np.generic[Any]] | FileArray

# safetensors dtype code -> numpy code of the storage dtype
STORAGE = {
    "BOOL": "|b1",
    "U8": "|u1",
    "I8": "|i1",
    "F8_E4M3": "|u1",
    "F8_E5M2": "|u1",
    "U16": "<u2",
    "I16": "<i2",
    "F16": "<f2",
    "BF16": "<u2",
    "U32": "<u4",
    "I32": "<i4",
    "F32": "<f4",
    "U64": "<u8",
    "I64": "<i8",
    "F64": "<f8",
}
# safetensors dtype code -> name of the dtype in PyTorch
DTYPE_NAMES = {
    "BOOL": "bool",
    "U8": "uint8",
    "I8": "int8",
    "F8_E4M3": "float8_e4m3fn",
    "F8_E5M2": "float8_e5m2",
    "U16": "uint16",
    "I16": "int16",
    "F16": "float16",
    "BF16": "bfloat16",
    "U32": "uint32",
    "I32": "int32",
    "F32": "float32",
    "U64": "uint64",
    "I64": "int64",
    "F64": "float64",
}
# codes that safetensors defines, and that are not read
UNREAD = {
    "C64": "complex64",
    "F4": "4-bit floats",
    "F6_E2M3": "6-bit floats",
    "F6_E3M2": "6-bit floats",
    "F8_E8M0": "scales of blocks",
    "F8_E4M3FNUZ": "float8_e4m3fnuz",
    "F8_E5M2FNUZ": "float8_e5m2fnuz",
}
FLOAT8 = frozenset(("F8_E4M3", "F8_E5M2"))
FLOATING = frozenset(("F64", "F32", "F16", "BF16", *FLOAT8))
FLOAT_DTYPES = ("float64", "float32", "float16", "bfloat16")  # names of those to compute in


def widest_dtype(codes: Iterable[str]) -> str:
    """Return the smallest floating-point dtype that holds all values of several exactly."""
    found = set(codes)
    if len(found) == 1:
        return found.pop()
    if "F64" in found:
        return "F64"
    if "F32" in found or {"F16", "BF16"} <= found:
        return "F32"
    return "BF16" if "BF16" in found else "F16"


class TensorInfo(NamedTuple):
    """Dtype and shape of a stored tensor."""

    dtype: str  # safetensors code of the element type, such as ``BF16``
    shape: tuple[int, ...]  # size of each axis

    @property
    def nbytes(self) -> int:
        """Size of the data in bytes."""
        import math

        return math.prod(self.shape) * int(STORAGE[self.dtype][2:])


@dataclass(frozen=True)
class TensorToWrite:
    """A tensor to write to a file."""

    name: str  # name of the tensor in the file
    info: TensorInfo  # dtype and shape
    # function that returns arrays in storage dtype; concatenated, their elements are the data of
    # the tensor. Buffers behind the arrays may be freed once all were taken.
    chunks: "Callable[[], Iterable[Array]]"


class TensorReader(ABC):
    """Base class of readers of an open checkpoint. As a context manager, it closes the files.

    Attributes:
        tensors: name -> dtype and shape, known from the headers.
        files: paths of the files that hold the tensors.
        metadata: what the header says of model and tokenizer, key -> value, in formats with
            ``Format.self_contained``.
        quantized: types of quantized tensors, such as ``q4_0``, which are read in float32.
    """

    tensors: Mapping[str, TensorInfo]
    files: Sequence[Path]
    quantized: Sequence[str] = ()
    metadata: Mapping[str, Any] = MappingProxyType({})

    @abstractmethod
    def read(self, name: str) -> "NDArray[np.generic[Any]]":
        """Return a tensor in storage dtype, as a read-only array."""

    def lazy(self, name: str) -> "NDArray[np.generic[Any]] | FileArray":
        """Return a tensor in storage dtype, read on use if the format supports that.

        The result can be transposed, sliced and reshaped like a numpy array.
        """
        return self.read(name)

    def close(self) -> None:  # noqa: B027 (optional)
        """Close the files. Lazy arrays can no longer be read."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


class SelectedReader(TensorReader):
    """Some of the tensors of a reader, which it closes."""

    def __init__(self, reader: TensorReader, names: Iterable[str]) -> None:
        self._reader = reader
        self.files = reader.files
        self.tensors = {name: reader.tensors[name] for name in names}

    def read(self, name: str) -> "NDArray[np.generic[Any]]":
        """See ``TensorReader``."""
        return self._reader.read(name)

    def lazy(self, name: str) -> "NDArray[np.generic[Any]] | FileArray":
        """See ``TensorReader``."""
        return self._reader.lazy(name)

    def close(self) -> None:
        """See ``TensorReader``."""
        self._reader.close()


class Format(ABC):
    """Base class of checkpoint file formats.

    Attributes:
        name: name in messages and manifests.
        priority: of several formats in a directory, the one with the highest priority is read.
        executable: the format can contain code (pickle), and is read only with ``--allow-pickle``.
        naming_scheme: naming scheme of the tensors; a family must support any but ``hub``.
        self_contained: a file describes its model and tokenizer in ``TensorReader.metadata``, and
            needs no other file.
    """

    name: ClassVar[str]
    priority: ClassVar[int] = 0
    executable: ClassVar[bool] = False
    naming_scheme: ClassVar[str] = "hub"
    self_contained: ClassVar[bool] = False

    @abstractmethod
    def find(self, names: Sequence[str]) -> tuple[str, ...]:
        """Return the file names of a directory that this format would read, or ().

        Files are selected by name, so that this works before a download. An index file is first.
        """

    @abstractmethod
    def open(self, directory: Path, names: Sequence[str]) -> TensorReader:
        """Open the files that ``find`` returned.

        Raises:
            VerificationError: a file is truncated or malformed, or a shard is missing or not listed
                in the index.
        """

    def without_checksums(self) -> "Format":
        """Return a variant of the format that accepts files without their optional checksums."""
        return self

    def write(
        self, directory: Path, outputs: Sequence[TensorToWrite], advance: "Advance"
    ) -> list[Path]:
        """Write tensors; implemented by formats in which families are published.

        Args:
            directory: directory to write to.
            outputs: tensors, in the order of the file.
            advance: called with the number of bytes written.

        Returns:
            paths of the files that were written.

        Raises:
            UsageError: the format is read-only, or cannot store one of the tensors.
        """
        raise UsageError(f"{self.name} files cannot be written")
