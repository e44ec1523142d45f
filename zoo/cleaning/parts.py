"""The texts between two stages, as parts: compressed JSON lines, one part for each task.

A part has the texts of a file, or of a piece of a large one: a range of bytes of JSON lines, or row
groups of Parquet. Where files are cut depends on the files only.
"""

import gzip
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from datatrove.data import Document

from zoo.data.readers.documents import ReaderConfig, document_parts
from zoo.data.readers.text_io import read_lines
from zoo.data.streams.json_lines import JsonLinesShard, count_rows
from zoo.data.streams.shards import Segment, Shard
from zoo.io.json import JsonStruct, encode_json
from zoo.io.output.atomic import atomic_write
from zoo.io.paths import readable_name

if TYPE_CHECKING:
    from collections.abc import Iterable

COMPRESSION_LEVEL = 3
SUFFIX = ".jsonl.gz"
MIN_PIECE_BYTES = 16 << 20
MAX_PIECES = 512  # Pieces of all files together, in addition to small files.


def part_name(task: int) -> str:
    """Return the file name of the part of a task."""
    return f"{task:05d}{SUFFIX}"


class PartCounts(JsonStruct):
    """What a part has."""

    texts: int = 0
    characters: int = 0


@dataclass(frozen=True)
class FilePiece:
    """A file, or a piece of one, that a task reads.

    Attributes:
        shard: the file.
        segment: the rows of the piece.
        name: how a text names its file.
        previous_rows: number of rows before the piece, where it counts its rows from 0.
    """

    shard: Shard
    segment: Segment
    name: str
    previous_rows: int


def cut_files(shards: Sequence[Shard]) -> list[FilePiece]:
    """Return the pieces of files, in the order of their texts.

    Pieces have ``MIN_PIECE_BYTES`` or more, and of a large input a ``MAX_PIECES``-th.
    """
    total = sum(shard.size for shard in shards)
    target_bytes = max(MIN_PIECE_BYTES, total // MAX_PIECES)
    pieces = []
    for number, shard in enumerate(shards):
        name = readable_name(shard.file)
        segments = shard.segments(number, target_bytes)
        previous_rows = [0] * len(segments)
        if isinstance(shard, JsonLinesShard) and len(segments) > 1:
            starts = [segment.start_offset for segment in segments]
            previous_rows = count_rows(shard.file, starts)
        for segment, count in zip(segments, previous_rows, strict=True):
            pieces.append(FilePiece(shard, segment, name, count))
    return pieces


class ReadTexts:
    """The first step of the first stage: the texts of a piece of the input.

    Args:
        pieces: the pieces, one for each task.
        reader: separation of files into texts.
    """

    def __init__(self, pieces: Sequence[FilePiece], reader: ReaderConfig) -> None:
        self.pieces = list(pieces)
        self.reader = reader

    def __call__(self, data: Any, rank: int = 0, world_size: int = 1) -> Iterator[Document]:
        """Yield the texts of a task, each with the name of its file and the number of its row.

        The parts of a text that is too long have a second number.
        """
        piece = self.pieces[rank]
        segment = piece.segment
        rows = piece.shard.rows(segment, segment.start_row, segment.start_offset, self.reader)
        for row in rows:
            row_id = f"{piece.name}:{piece.previous_rows + row.next_row}"
            for number, text in enumerate(document_parts(row.text), 1):
                if text and not text.isspace():
                    yield Document(text=text, id=row_id if number == 1 else f"{row_id}.{number}")


class ReadPart:
    """The first step of a later stage: the texts of a part.

    Args:
        folder: directory of the parts.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __call__(self, data: Any, rank: int = 0, world_size: int = 1) -> Iterator[Document]:
        """Yield the texts of a task."""
        for line in read_lines(self.folder / part_name(rank), rows=True):
            if line:
                row = msgspec.json.decode(line)
                yield Document(text=row["text"], id=row["id"])


class WritePart:
    """The last step of a stage: a part, which has its name when it is complete.

    Args:
        folder: directory of the parts.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __call__(
        self, data: "Iterable[Document]", rank: int = 0, world_size: int = 1
    ) -> Iterator[Document]:
        """Write the texts of a task, and yield them."""
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.folder / part_name(rank)
        unfinished = path.with_name(f"{path.name}.part")
        counts = PartCounts()
        with (
            unfinished.open("wb") as raw,
            gzip.GzipFile("", "wb", COMPRESSION_LEVEL, raw, mtime=0) as file,
        ):
            for document in data:
                row = {"text": document.text, "id": document.id}
                file.write(msgspec.json.encode(row) + b"\n")
                counts.texts += 1
                counts.characters += len(document.text)
                yield document
        os.replace(unfinished, path)
        atomic_write(counts_path(self.folder, rank), encode_json(counts))


def counts_path(folder: Path, task: int) -> Path:
    """Return the file with the counts of a part."""
    return folder / f"{task:05d}.json"
