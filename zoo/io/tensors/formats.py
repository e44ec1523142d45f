"""What the core knows of a checkpoint file: named tensors that can be read one by one.

A format knows bytes and never a family. Tensors come as numpy views in *storage* dtype: the
dtypes that numpy lacks travel as unsigned integers of their width (bfloat16 as uint16, the fp8
kinds as uint8), and ``TensorInfo.dtype`` says what they mean.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self

from zoo.errors import UsageError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from zoo.io.progress import Advance
    from zoo.io.tensors.file_array import FileArray

    Array = NDArray[np.generic[Any]] | FileArray

# safetensors dtype code -> the numpy dtype its bytes are viewed as
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


class TensorInfo(NamedTuple):
    """A tensor as a file header declares it.

    Attributes:
        dtype: the safetensors code of its element type (``F32``, ``BF16``, ...).
        shape: its dimensions.
    """

    dtype: str
    shape: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        """Size of the tensor's data in bytes."""
        import math

        return math.prod(self.shape) * int(STORAGE[self.dtype][2:])


@dataclass(frozen=True)
class TensorToWrite:
    """A tensor to write to a file.

    Attributes:
        name: name of the tensor in the file.
        info: dtype and shape.
        chunks: function that returns arrays in storage dtype; concatenated, their elements are
            the data of the tensor. Buffers behind the arrays may be freed once all were taken.
    """

    name: str
    info: TensorInfo
    chunks: "Callable[[], Iterable[Array]]"


class TensorReader(ABC):
    """An open checkpoint. A context manager: leaving it closes the files.

    Attributes:
        tensors: every tensor in the checkpoint, from the headers alone.
        files: the files the tensors live in.
    """

    tensors: Mapping[str, TensorInfo]
    files: Sequence[Path]

    @abstractmethod
    def read(self, name: str) -> "NDArray[np.generic[Any]]":
        """Return one tensor in storage dtype. It is read-only."""

    def lazy(self, name: str) -> "NDArray[np.generic[Any]] | FileArray":
        """Return one tensor in storage dtype, where possible without reading it yet.

        What is returned can be transposed, sliced and reshaped like a numpy array.
        """
        return self.read(name)

    def close(self) -> None:  # noqa: B027 (an option, not a duty)
        """Close the files. Arrays that are not read yet can no longer be."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


class Format(ABC):
    """A kind of checkpoint file.

    Attributes:
        name: how messages and manifests call it.
        priority: where a directory holds several formats, the highest is read.
        executable: other readers run code that the file holds (pickle): it is read only with
            ``--allow-pickle``.
        naming_scheme: whose names its tensors bear; other than the Hub's, a family must know them.
    """

    name: ClassVar[str]
    priority: ClassVar[int] = 0
    executable: ClassVar[bool] = False
    naming_scheme: ClassVar[str] = "hub"

    @abstractmethod
    def find(self, names: Sequence[str]) -> tuple[str, ...]:
        """Return those of a directory's file names that this format would read, or ().

        It sees names alone, so that it can choose what to download. An index file comes first.
        """

    @abstractmethod
    def open(self, directory: Path, names: Sequence[str]) -> TensorReader:
        """Open the files that ``find`` chose.

        Raises:
            VerificationError: a file is truncated, lies about its contents, or a shard is
                missing or not listed in the index.
        """

    def without_checksums(self) -> "Format":
        """Return the format as it reads files whose optional checksums were never written."""
        return self

    def write(
        self, directory: Path, outputs: Sequence[TensorToWrite], advance: "Advance"
    ) -> list[Path]:
        """Write tensors, for families that are published in this format.

        Args:
            directory: where to.
            outputs: what, in order.
            advance: told how many bytes were written.

        Returns:
            the files written.

        Raises:
            UsageError: the format is for reading alone, or cannot hold one of them.
        """
        raise UsageError(f"{self.name} files cannot be written")
