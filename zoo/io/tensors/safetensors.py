"""Reading and writing of safetensors files: a header of names, dtypes and shapes, then the data."""

import os
import re
import struct
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from zoo.errors import UsageError, VerificationError
from zoo.io import limits
from zoo.io.files import open_regular, reading
from zoo.io.json import dump_json, parse_json
from zoo.io.limits import MAX_NAME_LENGTH
from zoo.io.sizes import check_size
from zoo.io.tensors.file_array import DataFile, FileArray
from zoo.io.tensors.file_range import blocks
from zoo.io.tensors.formats import STORAGE, UNREAD, TensorInfo, TensorReader
from zoo.overrides import override

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

LENGTH = struct.Struct("<Q")
MAX_RANK = 64  # maximum number of axes of a numpy array
MAX_BYTES = 1 << 63
ALIGN = 8
METADATA = "__metadata__"
LFS_POINTER = b"version https://git-lfs"
UNSOUND = re.compile("[\\x00-\\x1f\\x7f-\\x9f\\ud800-\\udfff]")  # controls, lone surrogates


def read_header(path: Path) -> tuple[dict[str, TensorInfo], dict[str, int], dict[str, str]]:
    """Read and check the header of a file: dtypes and shapes, offsets in the file, metadata."""
    with open_regular(path) as file, reading(path):
        size = os.fstat(file.fileno()).st_size
        length = _header_length(path, file.read(LENGTH.size), size)
        raw = file.read(length)
    what = f"{path}: not a sound safetensors file: its header"
    header = parse_json(raw, what, max_values=limits.MAX_HEADER_VALUES, unique_keys=True)
    if not isinstance(header, dict):
        raise _damaged(path, "its header is not a JSON object")
    check_size(path, "number of tensors", len(header), limits.MAX_TENSORS)
    metadata = header.pop(METADATA, None) or {}
    if not isinstance(metadata, dict) or any(type(v) is not str for v in metadata.values()):
        raise _damaged(path, "its metadata are not strings")
    start = LENGTH.size + length
    tensors, offsets = _layout(path, header, size - start)
    return tensors, {name: start + at for name, at in offsets.items()}, metadata


def _header_length(path: Path, raw: bytes, size: int) -> int:
    if raw == LFS_POINTER[: LENGTH.size]:
        raise VerificationError(f"{path} is a Git LFS pointer, not the file", "run `git lfs pull`")
    if len(raw) < LENGTH.size:
        raise _damaged(path, f"it has {len(raw)} bytes")
    length: int = LENGTH.unpack(raw)[0]
    if not 0 < length <= size - LENGTH.size:
        raise _damaged(path, f"its header claims {length} bytes of a {size}-byte file")
    check_size(path, "length of the header", length, limits.MAX_HEADER_BYTES)
    return length


def _layout(
    path: Path, header: Mapping[str, Any], size: int
) -> tuple[dict[str, TensorInfo], dict[str, int]]:
    tensors = {}
    spans = {}
    for name, item in header.items():
        if not is_sound_name(name):
            raise _damaged(path, f"{name!r:.100} cannot be the name of a tensor")
        tensors[name], spans[name] = _entry(path, name, item, size)
    at = 0
    for name, (begin, end) in sorted(spans.items(), key=lambda item: item[1]):
        if begin != at:
            raise _damaged(path, f"{name} starts at {begin}, where {at} was expected")
        at = end
    if at != size:
        raise _damaged(path, f"it has {size} bytes of data where its header describes {at}")
    return tensors, {name: begin for name, (begin, _) in spans.items()}


def _entry(path: Path, name: str, item: Any, size: int) -> tuple[TensorInfo, tuple[int, int]]:
    """Check the entry of a tensor; return its info, and begin and end of its data."""
    try:
        info = TensorInfo(item["dtype"], tuple(item["shape"]))
        begin, end = item["data_offsets"]
    except (KeyError, TypeError, ValueError) as error:
        raise _damaged(path, f"its header entry for {name} is malformed") from error
    if type(info.dtype) is str and info.dtype in UNREAD:
        raise UsageError(
            f"{path}: {name} has the dtype {info.dtype} ({UNREAD[info.dtype]}), which is not read",
            "save the tensors in float32, float16 or bfloat16, or take the checkpoint that these "
            "were made from",
        )
    if type(info.dtype) is not str or info.dtype not in STORAGE:
        raise _damaged(path, f"{name} has the unknown dtype {info.dtype!r:.40}")
    if not is_sound_shape(info) or not all(type(n) is int and n >= 0 for n in (begin, end)):
        raise _damaged(path, f"the shape or the offsets of {name} are not sizes")
    if end - begin != info.nbytes or end > size:
        raise _damaged(path, f"the offsets of {name} do not fit its shape or the file")
    return info, (begin, end)


def is_sound_name(name: str) -> bool:
    """Return ``True`` if a tensor name has no control characters and an acceptable length."""
    return len(name) <= MAX_NAME_LENGTH and UNSOUND.search(name) is None


def is_sound_shape(info: TensorInfo) -> bool:
    """Return ``True`` if numpy can represent the shape, even where one of the axes has size 0."""
    if len(info.shape) > MAX_RANK or not all(type(n) is int and n >= 0 for n in info.shape):
        return False
    return info._replace(shape=tuple(n for n in info.shape if n)).nbytes < MAX_BYTES


def _damaged(path: Path, reason: str) -> VerificationError:
    return VerificationError(f"{path}: not a sound safetensors file: {reason}", "fetch it again")


class SafetensorsReader(TensorReader):
    """Reader of one or several safetensors files as one set of tensors."""

    # Implemented here instead of with the safetensors package for three reasons: tensors are read
    # and written in pieces, so that a model need not fit into memory; files are hashed while they
    # are written; and every field of a header is checked within limits, so that errors name the
    # field. The layout is the one published with the safetensors package: 8 bytes of header length,
    # a JSON header, then the data without gaps.

    def __init__(self, files: Sequence[Path]) -> None:
        self.files = list(files)
        self.tensors: dict[str, TensorInfo] = {}
        self.metadata: dict[str, str] = {}
        self._at: dict[str, tuple[Path, int]] = {}
        self._data: dict[Path, DataFile] = {}
        for path in files:
            tensors, offsets, metadata = read_header(path)
            for name in tensors.keys() & self.tensors.keys():
                raise VerificationError(f"{name} is in both {self._at[name][0]} and {path}")
            self.tensors |= tensors
            self.metadata |= metadata
            self._at |= {name: (path, offset) for name, offset in offsets.items()}
            ends = [offsets[name] + info.nbytes for name, info in tensors.items()]
            self._data[path] = DataFile(path, max(ends, default=0))

    def file_of(self, name: str) -> Path:
        """Return the path of the file that holds a tensor."""
        return self._at[name][0]

    @override
    def read(self, name: str) -> "NDArray[np.generic[Any]]":
        array = self.lazy(name).read()
        array.flags.writeable = False
        return array

    @override
    def lazy(self, name: str) -> FileArray:
        info = self.tensors[name]
        path, offset = self._at[name]
        return FileArray.stored(self._data[path], STORAGE[info.dtype], info.shape, offset)


def header_bytes(tensors: Mapping[str, TensorInfo], metadata: Mapping[str, str]) -> bytes:
    """Return length field and header of a file whose data follow in the given order."""
    assert METADATA not in tensors, "the name is taken by the format"
    header: dict[str, Any] = {METADATA: dict(metadata)} if metadata else {}
    at = 0
    for name, info in tensors.items():
        end = at + info.nbytes
        header[name] = {"dtype": info.dtype, "shape": info.shape, "data_offsets": [at, end]}
        at = end
    text = dump_json(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % ALIGN)
    return LENGTH.pack(len(text)) + text


def write_chunks(file: BinaryIO, chunks: "Iterable[NDArray[np.generic[Any]] | FileArray]") -> None:
    """Append the elements of arrays in row-major order to an open buffered file."""
    import numpy as np

    for piece in chunks:
        for (block,) in blocks(piece):
            file.write(block.reshape(-1).view(np.uint8).data)
