"""TensorFlow 1 checkpoints (tensor bundles), read without TensorFlow.

Implemented here because TensorFlow is a dependency of several hundred megabytes, and allocates
tensors of any size that an index contains.

A checkpoint ``NAME`` is a table ``NAME.index`` of tensors and data files
``NAME.data-00000-of-00001``. The messages are defined in ``tensor_bundle.proto``. Checksums are
verified: of the index when it is opened, of a tensor when it is read.
"""

import os
import re
import struct
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from zoo.errors import UsageError, VerificationError
from zoo.io.crc32c import unmasked
from zoo.io.files import open_regular, read_regular
from zoo.io.limits import MAX_SHAPES_BYTES, MAX_TABLE_BYTES, MAX_TABLE_TENSORS
from zoo.io.protobuf import as_bytes, as_int, fields
from zoo.io.sizes import check_size
from zoo.io.tensors.file_array import DataFile, FileArray
from zoo.io.tensors.formats import STORAGE, Format, TensorInfo, TensorReader
from zoo.io.tensors.safetensors import MAX_RANK, METADATA, is_sound_name, is_sound_shape
from zoo.overrides import override
from zoo_converters.sorted_table import Checksum, read_table

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

# enum DataType of types.proto -> safetensors code
DTYPES = {
    1: "F32",
    2: "F64",
    3: "I32",
    4: "U8",
    5: "I16",
    6: "I8",
    9: "I64",
    10: "BOOL",
    14: "BF16",
    17: "U16",
    19: "F16",
    22: "U32",
    23: "U64",
}
CHUNK = 1 << 20
STATE = "checkpoint"  # a CheckpointState of checkpoint_state.proto in text format
LATEST = re.compile(r'^model_checkpoint_path:\s*"([^"]+)"', re.MULTILINE)
DATA = re.compile(r"(.+)\.data-(\d{5})-of-(\d{5})")


class Entry(NamedTuple):
    """Index entry of a tensor."""

    info: TensorInfo  # dtype and shape
    shard: int  # number of the data file
    offset: int  # position of the data in the file, in bytes
    crc: int  # CRC-32C of the data


class TensorFlow(Format):
    """Format of an index and its data files."""

    name: ClassVar[str] = "tensorflow"
    naming_scheme: ClassVar[str] = "tensorflow"
    priority: ClassVar[int] = 5

    @override
    def find(self, names: Sequence[str]) -> tuple[str, ...]:
        """Return the index and its data files; of several checkpoints all files, after the state
        file that names the latest.
        """
        data = {match[1] for name in names if (match := DATA.fullmatch(name))}
        stems = sorted(stem for stem in data if f"{stem}.index" in names)
        entry = [name for stem in stems for name in _files(stem, names)]
        return tuple([STATE] * (len(stems) > 1 and STATE in names) + entry)

    @override
    def open(self, directory: Path, names: Sequence[str]) -> TensorReader:
        index, *data = _files(_select_checkpoint(directory, names), names)
        for number, name in enumerate(data):  # their names have the number of data files
            match = DATA.fullmatch(name)
            if match is None or int(match[2]) != number or int(match[3]) != len(data):
                raise VerificationError(
                    f"{directory / name} is one data file of several, and not all are there",
                    "fetch the checkpoint again",
                )
        return TensorFlowReader(directory / index, [directory / name for name in data])


def _files(stem: str, names: Sequence[str]) -> list[str]:
    """Return the files of a checkpoint: the index, then the data files in order."""
    data = [name for name in names if (match := DATA.fullmatch(name)) and match[1] == stem]
    return [f"{stem}.index", *sorted(data)]


def _select_checkpoint(directory: Path, names: Sequence[str]) -> str:
    """Return the only checkpoint, or the latest according to TensorFlow's state file."""
    stems = [name.removesuffix(".index") for name in names if name.endswith(".index")]
    if len(stems) > 1 and STATE in names:
        state = read_regular(directory / STATE, "state file", MAX_SHAPES_BYTES)
        latest = LATEST.search(state.decode("utf-8", "replace"))
        latest_name = PurePosixPath(latest[1]).name if latest else ""
        stems = [latest_name] if latest_name in stems else stems
    if len(stems) > 1:
        raise UsageError(
            f"{directory} holds several checkpoints, {' and '.join(stems)}, and no file "
            f"{STATE!r} names one",
            f"give the path of that one, such as {directory / stems[-1]}",
        )
    return stems[0]


class TensorFlowReader(TensorReader):
    """Reader of a checkpoint."""

    def __init__(self, index: Path, data: Sequence[Path]) -> None:
        self.files = [index, *data]
        self._data = list(data)
        self._checked: set[str] = set()
        self._checksum = load_checksum()
        self._entries = _read_index(index, len(data), self._checksum)
        # if tensors could overlap, a small file could contain large ones
        stored = [(name, entry) for name, entry in self._entries.items() if entry.info.nbytes]
        stored.sort(key=lambda item: (item[1].shard, item[1].offset))
        for (name, entry), (follower, after) in pairwise(stored):
            if entry.shard == after.shard and after.offset < entry.offset + entry.info.nbytes:
                raise VerificationError(f"{index}: {name} and {follower} overlap")
        self.tensors = {name: entry.info for name, entry in self._entries.items()}
        self._files = [DataFile(path, size) for path, size in self._sizes(index)]

    @override
    def read(self, name: str) -> "NDArray[np.generic[Any]]":
        array = self.lazy(name).read()
        array.flags.writeable = False
        return array

    @override
    def lazy(self, name: str) -> FileArray:
        """Return a tensor read on use, after its checksum was verified."""
        entry = self._entries[name]
        file = self._files[entry.shard]
        info = entry.info
        content = FileArray.stored(file, "|u1", (info.nbytes,), entry.offset)
        if name not in self._checked and self._checksum(content) != entry.crc:
            path = self._data[entry.shard]
            raise VerificationError(
                f"{path}: the checksum of {name} does not match", "fetch it again"
            )
        self._checked.add(name)
        return FileArray.stored(file, STORAGE[info.dtype], info.shape, entry.offset)

    def _sizes(self, index: Path) -> list[tuple[Path, int]]:
        """Return the data files with their sizes; check that every tensor lies within its file."""
        sizes = []
        for path in self._data:
            with open_regular(path) as file:
                sizes.append(file.seek(0, os.SEEK_END))
        for name, entry in self._entries.items():
            if entry.shard >= len(sizes):
                raise VerificationError(f"{index}: the data file with {name} is missing")
            if entry.offset + entry.info.nbytes > sizes[entry.shard]:
                raise VerificationError(
                    f"{self._data[entry.shard]} is cut short: {name} extends past its end",
                    "fetch it again",
                )
        return list(zip(self._data, sizes, strict=True))


def load_checksum() -> Checksum:
    """Return the function for CRC-32C of the ``google-crc32c`` package."""
    try:
        import google_crc32c
    except ImportError as error:
        raise UsageError(
            "TensorFlow checkpoints carry checksums, and the package for them is not installed",
            "pip install google-crc32c",
        ) from error

    def checksum(content: Any) -> int:
        crc = 0
        for at in range(0, len(content), CHUNK):
            piece = content[at : at + CHUNK]
            piece = piece.read() if isinstance(piece, FileArray) else piece
            crc = google_crc32c.extend(crc, bytes(piece))
        return crc

    return checksum


def _read_index(path: Path, shards: int, checksum: Checksum) -> dict[str, Entry]:
    content = read_regular(path, "index", MAX_TABLE_BYTES)
    try:
        rows = read_table(content, checksum)
        name, header = next(rows, (b"no header", b""))
        _check_header(name, header, shards)
        entries = {}
        for count, (key, value) in enumerate(rows):
            check_size(path, "number of tensors", count + 1, MAX_TABLE_TENSORS)
            entries[_name(key)] = _entry(value)
        return entries
    except (ValueError, IndexError, KeyError, struct.error) as error:
        raise VerificationError(f"{path} is not a sound index of a checkpoint: {error}") from error


def _check_header(name: bytes, content: bytes, shards: int) -> None:
    """Check the ``BundleHeaderProto``, whose key is empty."""
    header = dict(fields(content))
    if name:
        raise ValueError("it has no header")
    if header.get(2, 0) != 0:
        raise ValueError("the data are big-endian, which is not implemented")
    stated = as_int(header.get(1, 0))
    if stated != shards:
        raise ValueError(f"it has {stated} data files, and {shards} are there: one is missing")


def _name(key: bytes) -> str:
    name = key.decode()
    if not is_sound_name(name) or name == METADATA:
        raise ValueError(f"{name!r:.100} cannot be the name of a tensor")
    return name


def _entry(content: bytes) -> Entry:
    """Parse a ``BundleEntryProto``."""
    entry = dict(fields(content))
    if 7 in entry:
        raise ValueError("a tensor is stored in slices, which is not implemented")
    code = as_int(entry.get(1, 0))
    if code not in DTYPES:
        raise ValueError(f"a tensor has the data type {code}, which weights do not have")
    info = TensorInfo(DTYPES[code], _shape(as_bytes(entry.get(2, b""))))
    if not is_sound_shape(info) or as_int(entry.get(5, 0)) != info.nbytes:
        raise ValueError("a tensor's size does not fit its shape")
    (crc,) = struct.unpack("<I", as_bytes(entry[6]))
    return Entry(info, as_int(entry.get(3, 0)), as_int(entry.get(4, 0)), unmasked(crc))


def _shape(content: bytes) -> tuple[int, ...]:
    """Parse a ``TensorShapeProto``: field 2 is a dimension, whose field 1 is its size."""
    shape = []
    for number, value in fields(content):
        if number == 2:
            shape.append(as_int(dict(fields(as_bytes(value))).get(1, 0)))
        if len(shape) > MAX_RANK:
            raise ValueError(f"a tensor has more than {MAX_RANK} dimensions")
    return tuple(shape)
