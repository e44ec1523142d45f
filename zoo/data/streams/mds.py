"""MDS, the format of mosaicml-streaming.

``index.json`` lists the shards of a folder with the names, encodings and sizes of their columns. A
shard has the number of its samples, the offset of each sample and of its end (uint32, little
endian), a description in JSON, and the samples. A sample has the sizes of its columns that have no
fixed one (uint32), and the values of all columns one after another. Text has the encoding ``str``,
which is UTF-8. A shard may be compressed as a whole, and ``index.json`` may have hashes of its file
(https://github.com/mosaicml/streaming, ``streaming/base/format/mds`` and ``base/writer.py``).
"""

import hashlib
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from zoo.data.readers.documents import ReaderConfig, missing_field
from zoo.data.readers.text_io import GZIP, MDS_ZSTD, ZSTD, read_pieces
from zoo.data.streams.shards import Segment, Shard, StreamRow
from zoo.errors import SourceError, VerificationError
from zoo.io.files import open_regular, reading
from zoo.io.json import read_json_object
from zoo.io.limits import MAX_ROW_BYTES
from zoo.io.paths import safe_join
from zoo.io.sizes import check_size
from zoo.overrides import override

COMPRESSED_SUFFIXES = (GZIP, ZSTD, MDS_ZSTD)
MDS = (".mds", *(f".mds{suffix}" for suffix in COMPRESSED_SUFFIXES))
INDEX = "index.json"
VERSION = 2
TEXT_ENCODING = "str"
NUMBER = struct.Struct("<I")
REMEDY = "copy it again, with its index.json"


@dataclass(frozen=True)
class MdsShard(Shard):
    """A shard of MDS."""

    names: tuple[str, ...]
    encodings: tuple[str, ...]
    sizes: tuple[int | None, ...]  # Fixed sizes of columns in bytes.
    samples: int
    hashes: tuple[tuple[str, str], ...] = ()  # Algorithms, and digests of the file.

    @override
    def check(self, reader: ReaderConfig) -> None:
        field = reader.text_field
        if field not in self.names:
            raise missing_field(str(self.file), field, list(self.names))
        encoding = self.encodings[self.names.index(field)]
        if encoding != TEXT_ENCODING:
            raise VerificationError(
                f"{self.file}: {field!r} has the encoding {encoding}, not {TEXT_ENCODING}",
                "--text names another column",
            )

    @override
    def segments(self, number: int, target_bytes: int) -> list[Segment]:
        return [Segment(number, 0, self.samples, 0, 0)]

    @override
    def rows(
        self, segment: Segment, row: int, offset: int, reader: ReaderConfig
    ) -> Iterator[StreamRow]:
        column = self.names.index(reader.text_field)
        if row == 0:
            self._require_hashes()
        with SequentialBytes(self.file) as content:
            (count,) = NUMBER.unpack(content.read(0, NUMBER.size))
            if count != self.samples:
                raise VerificationError(
                    f"{self.file} has {count:,} samples, and {INDEX} says {self.samples:,}", REMEDY
                )
            packed_offsets = content.read(NUMBER.size, NUMBER.size * (count + 1))
            offsets = struct.unpack(f"<{count + 1}I", packed_offsets)
            for number in range(row, segment.end_row):
                location = f"{self.file}, row {number + 1}"
                size = offsets[number + 1] - offsets[number]
                check_size(location, "size of the sample in bytes", size, MAX_ROW_BYTES)
                if size < 0:
                    raise VerificationError(f"{location}: the offsets do not ascend", REMEDY)
                sample = content.read(offsets[number], size, location)
                yield StreamRow(self._text(sample, column, location), number + 1, 0)

    def _require_hashes(self) -> None:
        """Check the digests that the index has, of algorithms that Python has."""
        for algorithm, expected in self.hashes:
            # Digests of ``shake`` have no length of their own; those of xxhash are not checked.
            if algorithm not in hashlib.algorithms_available or algorithm.startswith("shake"):
                continue
            with open_regular(self.file) as opened, reading(self.file):
                digest = hashlib.file_digest(opened, algorithm).hexdigest()
            if digest != expected:
                raise VerificationError(
                    f"{self.file} is damaged: its {algorithm} is not the one in {INDEX}", REMEDY
                )

    def _text(self, sample: bytes, column: int, location: str) -> str:
        """Return the text of a sample."""
        place = NUMBER.size * self.sizes.count(None)
        head = 0
        try:
            for size in self.sizes[:column]:
                if size is None:
                    (size,) = NUMBER.unpack_from(sample, head)
                    head += NUMBER.size
                place += size
            text_size = self.sizes[column]
            if text_size is None:
                (text_size,) = NUMBER.unpack_from(sample, head)
        except struct.error as error:
            raise VerificationError(f"{location} is damaged: {error}", REMEDY) from error
        content = sample[place : place + text_size]
        if len(content) < text_size:
            raise VerificationError(f"{location} is damaged: its columns do not fit", REMEDY)
        try:
            return content.decode()
        except UnicodeDecodeError as error:
            raise VerificationError(f"{location} is not UTF-8: {error.reason}", REMEDY) from error


class SequentialBytes:
    """The bytes of a file in ascending order; a compressed one is decompressed on the way."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self._is_compressed = file.suffix in COMPRESSED_SUFFIXES
        self._pieces = read_pieces(file) if self._is_compressed else iter(())
        self._buffer = b""
        self._start = 0  # Place of the buffer in the uncompressed bytes.

    def __enter__(self) -> "SequentialBytes":
        if not self._is_compressed:
            self._opened = open_regular(self.file)
        return self

    def __exit__(self, *error: object) -> None:
        if not self._is_compressed:
            self._opened.close()

    def read(self, place: int, size: int, location: str = "") -> bytes:
        """Return some bytes, at or after those that were read before."""
        if not self._is_compressed:
            with reading(self.file):
                self._opened.seek(place)
                content = self._opened.read(size)
        else:
            content = self._read_compressed(place, size)
        if len(content) < size:
            raise VerificationError(f"{location or self.file}: the file ends before it", REMEDY)
        return content

    def _read_compressed(self, place: int, size: int) -> bytes:
        parts: list[bytes] = []
        buffered = 0
        while self._start + len(self._buffer) + buffered < place + size:
            if self._start + len(self._buffer) + buffered <= place:
                # Nothing of what was read before is needed.
                self._start += len(self._buffer) + buffered
                self._buffer = b""
                parts.clear()
                buffered = 0
            piece = next(self._pieces, None)
            if piece is None:
                break
            parts.append(piece)
            buffered += len(piece)
        self._buffer = b"".join([self._buffer, *parts])
        self._buffer = self._buffer[place - self._start :]
        self._start = place
        return self._buffer[:size]


def mds_shards(folder: Path) -> list[Shard] | None:
    """Return the shards of a folder of MDS; ``None`` for other folders."""
    index = folder / INDEX
    if not index.is_file():
        return None
    entries = read_json_object(index).get("shards")
    if not isinstance(entries, list):
        return None
    shards: list[Shard] = []
    for number, entry in enumerate(entries):
        location = f"{index}: shard {number}"
        try:
            shards.append(_shard(folder, entry))
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise VerificationError(
                f"{location} is not a shard of MDS: {error!r}", "write the data again"
            ) from error
    return shards


def _shard(folder: Path, entry: Any) -> Shard:
    if entry["format"] != "mds" or entry["version"] != VERSION:
        raise ValueError(f"format {entry['format']}, version {entry['version']}")
    data = entry["raw_data"]
    file = safe_join(folder, data["basename"], INDEX)
    if not file.is_file() and entry["zip_data"]:
        data = entry["zip_data"]
        file = safe_join(folder, data["basename"], INDEX)
        if file.suffix not in COMPRESSED_SUFFIXES:
            raise VerificationError(
                f"{file} is compressed with {entry['compression']}, which is not read",
                "decompress it; zstd and gz are read",
            )
    if not file.is_file():
        raise SourceError(f"{file} does not exist, and {folder / INDEX} lists it", REMEDY)
    size = file.stat().st_size
    if size != data["bytes"]:
        raise VerificationError(
            f"{file} has {size:,} bytes, and {INDEX} says {data['bytes']:,}", REMEDY
        )
    names = tuple(map(str, entry["column_names"]))
    encodings = tuple(map(str, entry["column_encodings"]))
    sizes = tuple(None if size is None else int(size) for size in entry["column_sizes"])
    if not len(names) == len(encodings) == len(sizes):
        raise ValueError("columns without encoding or size")
    hashes = tuple((str(name), str(digest)) for name, digest in data["hashes"].items())
    return MdsShard(file, size, names, encodings, sizes, int(entry["samples"]), hashes)
