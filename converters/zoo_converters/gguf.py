"""GGUF, the file format of llama.cpp; quantized tensors are read in float32.

The header is parsed here, with limits, because the package gguf maps the whole file and follows the
sizes that it states. The package computes the values of quantized tensors.
"""

import math
import os
import struct
from array import array
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, ClassVar, NamedTuple

from zoo.errors import UsageError, VerificationError
from zoo.io.files import open_regular
from zoo.io.limits import (
    MAX_GGUF_HEADER_BYTES,
    MAX_GGUF_KEYS,
    MAX_GGUF_STRINGS,
    MAX_NAME_LENGTH,
    MAX_TENSORS,
    MAX_TOKENIZER_BYTES,
)
from zoo.io.sizes import check_size
from zoo.io.tensors.file_array import DataFile, FileArray
from zoo.io.tensors.formats import STORAGE, Format, TensorInfo, TensorReader
from zoo.io.tensors.safetensors import is_sound_shape
from zoo.overrides import override

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Array = NDArray[np.generic[Any]] | FileArray

MAGIC = b"GGUF"
VERSIONS = (2, 3)
ALIGNMENT = 32
MAX_AXES = 4
ALIGNMENTS = frozenset(1 << power for power in range(17))  # Powers of two, as in llama.cpp.
# Number of the type in the file -> code of values that are stored as they are.
PLAIN = {0: "F32", 1: "F16", 24: "I8", 25: "I16", 26: "I32", 27: "I64", 28: "F64", 30: "BF16"}
# Number of the type -> its name, and values and bytes of a block.
QUANTIZED = {
    2: ("Q4_0", 32, 18),
    3: ("Q4_1", 32, 20),
    6: ("Q5_0", 32, 22),
    7: ("Q5_1", 32, 24),
    8: ("Q8_0", 32, 34),
    10: ("Q2_K", 256, 84),
    11: ("Q3_K", 256, 110),
    12: ("Q4_K", 256, 144),
    13: ("Q5_K", 256, 176),
    14: ("Q6_K", 256, 210),
    16: ("IQ2_XXS", 256, 66),
    17: ("IQ2_XS", 256, 74),
    18: ("IQ3_XXS", 256, 98),
    19: ("IQ1_S", 256, 50),
    20: ("IQ4_NL", 32, 18),
    21: ("IQ3_S", 256, 110),
    22: ("IQ2_S", 256, 82),
    23: ("IQ4_XS", 256, 136),
    29: ("IQ1_M", 256, 56),
    34: ("TQ1_0", 256, 54),
    35: ("TQ2_0", 256, 66),
    39: ("MXFP4", 32, 17),
    40: ("NVFP4", 64, 36),
}
# Number -> name of types that nothing dequantizes: types of values between operators, types that
# are repacked for a CPU, and types that llama.cpp has removed.
UNREAD = {4: "Q4_2", 5: "Q4_3", 9: "Q8_1", 15: "Q8_K", 31: "Q4_0_4_4", 32: "Q4_0_4_8"}
UNREAD |= {33: "Q4_0_8_8", 36: "IQ4_NL_4_4", 37: "IQ4_NL_4_8", 38: "IQ4_NL_8_8", 41: "Q1_0"}
# Type of a value in the header -> struct format; 8 is a string, 9 an array.
SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q"}
SCALARS |= {12: "d"}
STRING = 8
ARRAY = 9
BOOL = 7
LENGTH_BYTES = 8  # The size of the length in front of a string.


class HeaderArray(Sequence[Any]):
    """An array of a header, in about the memory that it takes in the file.

    A list takes eight bytes for an item, and up to fifty more for the item itself.
    """

    @override
    def __repr__(self) -> str:
        return f"an array of {len(self):,}"


class NumberArray(HeaderArray):
    """An array of numbers."""

    def __init__(self, code: str, content: bytearray) -> None:
        import numpy

        self._values = numpy.frombuffer(content, f"<{code}")

    @override
    def __len__(self) -> int:
        return len(self._values)

    @override
    def __getitem__(self, index: Any) -> Any:
        return self._values[index].tolist()  # Python's numbers


class StringArray(HeaderArray):
    """An array of strings, each of which is decoded when it is read."""

    def __init__(self, content: bytearray, ends: "array[int]") -> None:
        self._content = content
        self._ends = ends

    @override
    def __len__(self) -> int:
        return len(self._ends)

    @override
    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self[number] for number in range(*index.indices(len(self)))]
        end = self._ends[index]
        position = index % len(self)
        start = self._ends[position - 1] if position else 0
        return self._content[start:end].decode("utf-8")


class StoredTensor(NamedTuple):
    """A tensor of a file."""

    type_number: int  # number of its type
    shape: tuple[int, ...]
    offset: int  # of its data in the file
    nbytes: int


class Gguf(Format):
    """File format of llama.cpp."""

    name: ClassVar[str] = "gguf"
    naming_scheme: ClassVar[str] = "gguf"
    self_contained: ClassVar[bool] = True

    @override
    def find(self, names: Sequence[str]) -> tuple[str, ...]:
        matches = [name for name in names if name.endswith(".gguf")]
        return tuple(matches) if len(matches) == 1 else ()

    @override
    def open(self, directory: Path, names: Sequence[str]) -> TensorReader:
        return GgufReader(directory / names[0])


class GgufReader(TensorReader):
    """Reader of a GGUF file.

    Attributes:
        metadata: key -> value, of all keys of the header.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.files = (path,)
        with open_regular(path) as file:
            self._size = file.seek(0, os.SEEK_END)
            file.seek(0)
            header = _Header(path, file, self._size)
            try:
                self.metadata, self._stored = header.read()
            except UnicodeDecodeError as error:
                raise _damaged(path, f"a string of its header is not UTF-8: {error}") from error
        type_numbers = {tensor.type_number for tensor in self._stored.values()}
        self.quantized = tuple(
            QUANTIZED[type_number][0].lower() for type_number in sorted(type_numbers - PLAIN.keys())
        )
        self._file = DataFile(path, self._size)
        self.tensors: Mapping[str, TensorInfo] = {
            name: TensorInfo(PLAIN.get(tensor.type_number, "F32"), tensor.shape)
            for name, tensor in self._stored.items()
        }

    @override
    def read(self, name: str) -> "NDArray[np.generic[Any]]":
        tensor = self._stored[name]
        if tensor.type_number in PLAIN:
            values = self._plain(name).read()
            values.flags.writeable = False
            return values
        return self._dequantize(tensor)

    @override
    def lazy(self, name: str) -> "Array":
        return self._plain(name) if self._stored[name].type_number in PLAIN else self.read(name)

    def _plain(self, name: str) -> FileArray:
        tensor = self._stored[name]
        dtype = STORAGE[PLAIN[tensor.type_number]]
        return FileArray.stored(self._file, dtype, tensor.shape, tensor.offset)

    def _dequantize(self, tensor: StoredTensor) -> "NDArray[np.generic[Any]]":
        import numpy

        try:
            import gguf
        except ImportError as error:
            raise UsageError(
                f"{self.path} holds quantized tensors, which the package gguf reads: {error}",
                "pip install gguf",
            ) from error
        name, block, size = QUANTIZED[tensor.type_number]
        if name not in gguf.GGMLQuantizationType.__members__:
            raise UsageError(
                f"{self.path} holds tensors of the type {name}, which this version of the package "
                "gguf does not read",
                "pip install --upgrade gguf",
            )
        *rows, width = tensor.shape
        shape = (*rows, width // block * size)
        blocks = FileArray.stored(self._file, "|u1", shape, tensor.offset).read()
        with numpy.errstate(all="ignore"):  # A damaged scale may be infinite or NaN.
            values: NDArray[np.generic[Any]] = gguf.quants.dequantize(
                blocks, gguf.GGMLQuantizationType[name]
            )
        values.flags.writeable = False
        return values


class _Header:
    """The header of a file: keys and values, and the table of tensors."""

    def __init__(self, path: Path, file: BinaryIO, size: int) -> None:
        self._path = path
        self._file = file
        self._bytes_left = min(size, MAX_GGUF_HEADER_BYTES)  # Bytes that may still be read.
        self._size = size

    def read(self) -> tuple[dict[str, Any], dict[str, StoredTensor]]:
        """Return the metadata and the tensors."""
        if self._bytes(4) != MAGIC:
            raise _damaged(self._path, "it does not begin as GGUF files do")
        version = self._number("I")
        if version not in VERSIONS:
            raise VerificationError(
                f"{self._path} is of version {version} of GGUF", "convert it with llama.cpp first"
            )
        tensors = self._number("Q")
        keys = self._number("Q")
        room = self._bytes_left // LENGTH_BYTES  # Each begins with the length of its name.
        check_size(self._path, "number of tensors", tensors, MAX_TENSORS, room=room)
        check_size(self._path, "number of keys", keys, MAX_GGUF_KEYS, room=room)
        metadata = {}
        for _ in range(keys):
            name = self._string()
            if name in metadata:
                raise _damaged(self._path, f"its key {name!r:.100} is listed twice")
            metadata[name] = self._value(self._number("I"))
        entries = [self._tensor() for _ in range(tensors)]
        alignment = metadata.get("general.alignment", ALIGNMENT)
        if type(alignment) is not int or alignment not in ALIGNMENTS:
            raise _damaged(self._path, f"its alignment is {alignment!r:.50}")
        start = -(-self._file.tell() // alignment) * alignment
        return metadata, self._locate(entries, start)

    def _tensor(self) -> tuple[str, int, tuple[int, ...], int]:
        """Return name, type, shape and offset of a tensor."""
        name = self._string()
        axes = self._number("I")
        check_size(self._path, "length of a tensor's name", len(name), MAX_NAME_LENGTH)
        if not 1 <= axes <= MAX_AXES:
            raise _damaged(self._path, f"{name!r:.100} has {axes} axes")
        shape = tuple(reversed([self._number("Q") for _ in range(axes)]))
        type_number = self._number("I")
        offset = self._number("Q")
        if type_number not in PLAIN and type_number not in QUANTIZED:
            raise VerificationError(
                f"{self._path}: {name!r:.100} is of the type "
                f"{UNREAD.get(type_number, type_number)}, which is not read",
                "convert the model that the file was made from",
            )
        if not is_sound_shape(TensorInfo("F64", shape)) or 0 in shape:
            raise _damaged(self._path, f"{name!r:.100} has the shape {shape}")
        return name, type_number, shape, offset

    def _locate(
        self, entries: Sequence[tuple[str, int, tuple[int, ...], int]], start: int
    ) -> dict[str, StoredTensor]:
        """Return the tensors by name; they lie within the file, and none overlaps another."""
        tensors: dict[str, StoredTensor] = {}
        for name, type_number, shape, offset in entries:
            if name in tensors:
                raise _damaged(self._path, f"{name!r:.100} is listed twice")
            nbytes = self._nbytes(name, type_number, shape)
            tensors[name] = StoredTensor(type_number, shape, start + offset, nbytes)
        end = start
        for name, tensor in sorted(tensors.items(), key=lambda item: item[1].offset):
            if tensor.offset < end:
                raise _damaged(self._path, f"{name!r:.100} overlaps another tensor")
            end = tensor.offset + tensor.nbytes
            if end > self._size:
                raise _damaged(self._path, f"{name!r:.100} ends behind the file")
        return tensors

    def _nbytes(self, name: str, type_number: int, shape: tuple[int, ...]) -> int:
        if type_number in PLAIN:
            return TensorInfo(PLAIN[type_number], shape).nbytes
        type_name, block, size = QUANTIZED[type_number]
        if shape[-1] % block:
            raise _damaged(self._path, f"{name!r:.100} has rows of {shape[-1]}, in {type_name}")
        return math.prod(shape) // block * size

    def _value(self, type_number: int) -> Any:
        if type_number in SCALARS:
            return self._number(SCALARS[type_number])
        if type_number == STRING:
            return self._string()
        if type_number == ARRAY:
            return self._array(self._number("I"), self._number("Q"))
        raise _damaged(self._path, f"its header has a value of the type {type_number}")

    def _array(self, type_number: int, count: int) -> HeaderArray:
        if type_number in SCALARS:
            item_bytes = struct.calcsize(SCALARS[type_number])
            limit = MAX_GGUF_HEADER_BYTES
        else:
            item_bytes = LENGTH_BYTES  # The least size of a string.
            limit = MAX_GGUF_STRINGS
        room = self._bytes_left // item_bytes
        check_size(self._path, "length of an array of its header", count, limit, room=room)
        if type_number in SCALARS:
            content = bytearray(count * item_bytes)
            self._bytes_left -= len(content)
            if self._file.readinto(content) != len(content):  # type: ignore[attr-defined]
                raise _damaged(self._path, "it ends in its header")
            return NumberArray(SCALARS[type_number], content)
        if type_number != STRING and count:
            raise _damaged(self._path, f"its header has an array of the type {type_number}")
        joined = bytearray()
        ends = array("Q")
        for _ in range(count):
            text = self._bytes(int.from_bytes(self._bytes(LENGTH_BYTES), "little"))
            text.decode("utf-8")  # An error names the file now, and not when a string is used.
            joined += text
            ends.append(len(joined))
        return StringArray(joined, ends)

    def _string(self) -> str:
        length = check_size(
            self._path,
            "length of a string of its header",
            self._number("Q"),
            MAX_TOKENIZER_BYTES,
            room=self._bytes_left,
        )
        return self._bytes(length).decode("utf-8")

    def _number(self, code: str) -> Any:
        (value,) = struct.unpack(f"<{code}", self._bytes(struct.calcsize(code)))
        return value

    def _bytes(self, count: int) -> bytes:
        self._require(count)
        self._bytes_left -= count
        content = self._file.read(count)
        if len(content) != count:
            raise _damaged(self._path, "it ends in its header")
        return content

    def _require(self, count: int) -> None:
        """Check that as many bytes are left, before memory for them is taken."""
        if count <= self._bytes_left:
            return
        if self._size <= MAX_GGUF_HEADER_BYTES:
            raise _damaged(self._path, "it ends in its header")
        raise _damaged(self._path, "its header is too long")


def _damaged(path: Path, reason: str) -> VerificationError:
    return VerificationError(f"{path}: not a sound GGUF file: {reason}", "fetch it again")
