"""Arrays that were joined, cut into ``params_0.npy``, ``params_1.npy`` and so on, and stored flat.

``params_shapes.json`` lists the shapes of what they were, in order. There are no names: a tensor
is called by its number. Headers are read by numpy, which runs nothing; of objects that would be
unpickled not even the header is accepted.
"""

import json
import math
import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from pathlib import Path
from tokenize import TokenError
from typing import TYPE_CHECKING, Any, BinaryIO, ClassVar

from zoo.errors import SourceError, VerificationError
from zoo.formats import STORAGE, Format, TensorInfo, TensorReader
from zoo.io.file_array import FileArray
from zoo.mapped import MappedFile
from zoo.safetensors import write_pieces

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Array = NDArray[np.generic[Any]]

SHAPES = "params_shapes.json"
PART = re.compile(r"params_(\d{1,4})\.npy")
DTYPES = {STORAGE[code]: code for code in ("F16", "F32", "F64")}
# what numpy raises over a header; its reader for old files goes through Python's own parser
DAMAGE = (ValueError, SyntaxError, TypeError, MemoryError, RecursionError, TokenError)
MAX_SHAPES = 1_000_000  # bytes of the list of shapes; a tensor's has about ten


class Npy(Format):
    """The list of shapes and the flat arrays. Nothing in them can run."""

    name: ClassVar[str] = "npy"
    dialect: ClassVar[str] = "npy"

    def find(self, names: Sequence[str]) -> tuple[str, ...]:
        """See ``Format``. The list of shapes comes first, then the parts by number."""
        parts = {int(match[1]): name for name in names if (match := PART.fullmatch(name))}
        if SHAPES not in names or not parts:
            return ()
        return (SHAPES, *(parts[number] for number in sorted(parts)))

    def open(self, directory: Path, names: Sequence[str]) -> TensorReader:
        """See ``Format``."""
        return NpyReader(directory / names[0], [directory / name for name in names[1:]])


class NpyReader(TensorReader):
    """An open checkpoint.

    Args:
        shapes: the list of shapes.
        parts: the flat arrays, in order.

    Raises:
        SourceError: a file cannot be read.
        VerificationError: one is damaged or missing, or they do not hold what the list says.
    """

    def __init__(self, shapes: Path, parts: Sequence[Path]) -> None:
        self.files = (shapes, *parts)
        listed = _read_shapes(shapes)
        for number, path in enumerate(parts):
            if path.name != f"params_{number}.npy":
                raise VerificationError(f"{shapes.parent} lacks params_{number}.npy", "fetch it")
        self._parts = [_Part(path) for path in parts]
        dtypes = {part.dtype for part in self._parts}
        if len(dtypes) > 1:
            raise VerificationError(f"{shapes.parent}: the parts are of several dtypes")
        (code,) = dtypes
        self.tensors: Mapping[str, TensorInfo] = {
            str(number): TensorInfo(DTYPES[code], shape) for number, shape in enumerate(listed)
        }
        self._joined: dict[str, MappedFile] = {}
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._ends = list(accumulate(math.prod(shape) for shape in listed))
        held = sum(part.length for part in self._parts)
        if held != self._ends[-1]:
            raise VerificationError(
                f"{shapes} lists {self._ends[-1]} numbers, and the parts hold {held}",
                "a part is missing, or of another checkpoint",
            )

    def read(self, name: str) -> "Array":
        """See ``TensorReader``."""
        array = self.lazy(name).read()
        array.flags.writeable = False
        return array

    def lazy(self, name: str) -> FileArray:
        """See ``TensorReader``; what lies in several parts is joined in a file for the time."""
        info = self.tensors[name]
        stretches = list(self._stretches(name))
        if len(stretches) > 1:
            return self._joined_file(name).lazy(STORAGE[info.dtype], info.shape, 0)
        part, begin, _ = stretches[0]
        return part.lazy(begin, info.shape)

    def _joined_file(self, name: str) -> MappedFile:
        if name not in self._joined:
            self._folder = self._folder or tempfile.TemporaryDirectory()
            path = Path(self._folder.name, name)
            with path.open("wb") as file:
                for part, begin, stop in self._stretches(name):
                    write_pieces(file, (part.lazy(begin, (stop - begin,)),))
            self._joined[name] = MappedFile(path, self.tensors[name].nbytes)
        return self._joined[name]

    def _stretches(self, name: str) -> "Iterator[tuple[_Part, int, int]]":
        """Yield the parts that hold something of a tensor, each with where it begins and stops."""
        end = self._ends[int(name)]
        start = end - math.prod(self.tensors[name].shape)
        for part in self._parts:
            begin, stop = max(start, 0), min(end, part.length)
            if begin < stop:
                yield part, begin, stop
            start, end = start - part.length, end - part.length

    def release(self, name: str) -> None:
        """See ``TensorReader``."""
        if name in self._joined:
            self._joined[name].release(0, self.tensors[name].nbytes)
        for part, begin, stop in self._stretches(name):
            part.release(begin, stop)

    def close(self) -> None:
        """See ``TensorReader``."""
        for file in (*self._joined.values(), *(part.file for part in self._parts)):
            file.close()
        if self._folder is not None:
            self._folder.cleanup()


class _Part:
    """One flat array: its header read, its data read when they are needed."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            with path.open("rb") as file:
                self.dtype, self.length = _read_header(file)
                self._offset = file.tell()
        except OSError as error:
            raise SourceError(f"{path}: {error.strerror}") from error
        except DAMAGE as error:
            why = " ".join(str(error).split())[:200]
            raise VerificationError(f"{path} is no flat array of numbers: {why}") from error
        if path.stat().st_size != self._offset + self.length * int(self.dtype[2:]):
            raise VerificationError(f"{path} is not as long as its header says", "fetch it again")
        self.file = MappedFile(path, path.stat().st_size)

    def lazy(self, begin: int, shape: tuple[int, ...]) -> FileArray:
        return self.file.lazy(self.dtype, shape, self._at(begin))

    def release(self, begin: int, stop: int) -> None:
        self.file.release(self._at(begin), self._at(stop) - self._at(begin))

    def _at(self, element: int) -> int:
        return self._offset + element * int(self.dtype[2:])


def _read_header(file: BinaryIO) -> tuple[str, int]:
    """Return dtype and length of a flat array of numbers.

    Raises:
        ValueError: it is another thing.
    """
    from numpy.lib import format as npy

    version = npy.read_magic(file)
    if version not in ((1, 0), (2, 0)):
        raise ValueError(f"version {version[0]}.{version[1]} of the format")
    read = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
    shape, _, dtype = read(file)
    if dtype.str not in DTYPES or len(shape) != 1:
        raise ValueError(f"it holds {dtype} of shape {shape}")
    return dtype.str, shape[0]


def _read_shapes(path: Path) -> list[tuple[int, ...]]:
    try:
        if path.stat().st_size > MAX_SHAPES:
            raise VerificationError(f"{path} is too large to be a list of shapes")
        listed = json.loads(path.read_bytes())
    except OSError as error:
        raise SourceError(f"{path}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise VerificationError(f"{path} is not JSON: {error}") from error
    if not isinstance(listed, list) or not listed or not all(map(_is_shape, listed)):
        raise VerificationError(f"{path} is no list of shapes", "fetch it again")
    return [tuple(shape) for shape in listed]


def _is_shape(item: Any) -> bool:
    return isinstance(item, list) and all(type(size) is int and size > 0 for size in item)
