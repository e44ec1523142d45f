"""Checkpoints in ``params_0.npy``, ``params_1.npy`` and so on: one flat array, split into parts.

``params_shapes.json`` lists the shapes of the tensors in order. Their names are their numbers.

Headers are parsed here, because numpy's ``read_array_header_2_0`` reads up to 4 GB of a header
before it applies its limit, and evaluates the header as a Python literal. Only the one form of a
flat array of floats is accepted here. The data are read lazily, which numpy can only do with a
memory map.
"""

import math
import os
import re
import struct
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, ClassVar

from zoo.errors import VerificationError
from zoo.io.files import open_regular
from zoo.io.json import read_json
from zoo.io.limits import MAX_SHAPES_BYTES
from zoo.io.tensors.file_array import DataFile, FileArray
from zoo.io.tensors.formats import STORAGE, Format, TensorInfo, TensorReader
from zoo.io.tensors.safetensors import is_sound_shape, write_chunks
from zoo.overrides import override
from zoo_converters.scratch import ScratchFile

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Array = NDArray[np.generic[Any]]

SHAPES = "params_shapes.json"
PART = re.compile(r"params_(\d{1,4})\.npy")
DTYPES = {STORAGE[code]: code for code in ("F16", "F32", "F64")}
MAGIC = b"\x93NUMPY"
LENGTHS = {b"\1\0": "<H", b"\2\0": "<I"}  # version -> struct format of the header's length
NPY_HEADER_LIMIT = 1 << 10
# The header as numpy writes it; Python 2 writes a long integer.
HEADER = re.compile(
    r"\{'descr': '(<f[248])', 'fortran_order': (?:True|False), 'shape': \((\d{1,18})L?,\),? ?\}\s*"
)


class Npy(Format):
    """File format of a list of shapes and flat arrays."""

    name: ClassVar[str] = "npy"
    naming_scheme: ClassVar[str] = "npy"

    @override
    def find(self, names: Sequence[str]) -> tuple[str, ...]:
        """Return the list of shapes, then the parts by number."""
        parts = {}
        for name in names:
            match = PART.fullmatch(name)
            if match is not None:
                parts[int(match[1])] = name
        if SHAPES not in names or not parts:
            return ()
        return (SHAPES, *(parts[number] for number in sorted(parts)))

    @override
    def open(self, directory: Path, names: Sequence[str]) -> TensorReader:
        return NpyReader(directory / names[0], [directory / name for name in names[1:]])


class NpyReader(TensorReader):
    """Reader of a checkpoint."""

    def __init__(self, shapes: Path, parts: Sequence[Path]) -> None:
        self.files = (shapes, *parts)
        shape_list = read_json(shapes, max_bytes=MAX_SHAPES_BYTES)
        is_shape_list = isinstance(shape_list, list) and bool(shape_list)
        if not is_shape_list or not all(map(_is_shape, shape_list)):
            raise VerificationError(f"{shapes} is not a list of shapes", "fetch it again")
        for number, path in enumerate(parts):
            if path.name != f"params_{number}.npy":
                raise VerificationError(f"{shapes.parent} lacks params_{number}.npy", "fetch it")
        self._parts = [_Part(path) for path in parts]
        dtypes = {part.dtype for part in self._parts}
        if len(dtypes) > 1:
            raise VerificationError(f"{shapes.parent}: the parts are of several dtypes")
        (code,) = dtypes
        self.tensors: Mapping[str, TensorInfo] = {
            str(number): TensorInfo(DTYPES[code], tuple(shape))
            for number, shape in enumerate(shape_list)
        }
        self._joined: dict[str, ScratchFile] = {}
        self._ends = list(accumulate(math.prod(shape) for shape in shape_list))
        total = sum(part.length for part in self._parts)
        if total != self._ends[-1]:
            raise VerificationError(
                f"{shapes} lists {self._ends[-1]} numbers, and the parts hold {total}",
                "a part is missing, or belongs to another checkpoint",
            )

    @override
    def read(self, name: str) -> "Array":
        array = self.lazy(name).read()
        array.flags.writeable = False
        return array

    @override
    def lazy(self, name: str) -> FileArray:
        """Return a tensor read on use; a tensor in several parts is joined in a temporary file."""
        info = self.tensors[name]
        ranges = list(self._ranges(name))
        if len(ranges) > 1:
            return self._joined_file(name).lazy(STORAGE[info.dtype], info.shape, 0)
        part, begin, _ = ranges[0]
        return part.lazy(begin, info.shape)

    def _joined_file(self, name: str) -> ScratchFile:
        if name not in self._joined:
            scratch = ScratchFile(self.tensors[name].nbytes)
            for part, begin, stop in self._ranges(name):
                write_chunks(scratch.file, (part.lazy(begin, (stop - begin,)),))
            scratch.file.flush()
            self._joined[name] = scratch
        return self._joined[name]

    def _ranges(self, name: str) -> "Iterator[tuple[_Part, int, int]]":
        """Yield the parts that overlap a tensor, each with start and end of the overlap."""
        end = self._ends[int(name)]
        start = end - math.prod(self.tensors[name].shape)
        for part in self._parts:
            begin = max(start, 0)
            stop = min(end, part.length)
            if begin < stop:
                yield part, begin, stop
            start = start - part.length
            end = end - part.length

    @override
    def close(self) -> None:
        for scratch in self._joined.values():
            scratch.close()


class _Part:
    """One flat array; only its header is read."""

    def __init__(self, path: Path) -> None:
        with open_regular(path) as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(0)
            try:
                self.dtype, self.length = _read_header(file)
            except ValueError as error:
                raise VerificationError(
                    f"{path} is not a flat array of numbers: {error}"
                ) from error
            self._offset = file.tell()
        if size != self._offset + self.length * int(self.dtype[2:]):
            raise VerificationError(f"{path} is not as long as its header says", "fetch it again")
        self._file = DataFile(path, size)

    def lazy(self, begin: int, shape: tuple[int, ...]) -> FileArray:
        return FileArray.stored(
            self._file, self.dtype, shape, self._offset + begin * int(self.dtype[2:])
        )


def _read_header(file: BinaryIO) -> tuple[str, int]:
    """Return dtype and length of a flat array of numbers."""
    start = file.read(len(MAGIC) + 2)
    length_format = LENGTHS.get(start[len(MAGIC) :])
    if not start.startswith(MAGIC) or length_format is None:
        raise ValueError("it does not begin as .npy files do")
    raw = file.read(struct.calcsize(length_format))
    (length,) = struct.unpack(length_format, raw.ljust(struct.calcsize(length_format), b"\0"))
    if length > NPY_HEADER_LIMIT:
        raise ValueError(f"its header has {length:,} bytes")
    header = file.read(length).decode("latin-1")
    match = HEADER.fullmatch(header)
    if match is None or match[1] not in DTYPES:
        raise ValueError(f"its header is {header.strip()!r:.200}")
    return match[1], int(match[2])


def _is_shape(item: Any) -> bool:
    """Return ``True`` if a value is a list of positive sizes that numpy can represent."""
    if not isinstance(item, list) or not all(type(size) is int and size > 0 for size in item):
        return False
    return is_sound_shape(TensorInfo("F64", tuple(item)))
