"""Shards of a stream: files whose rows are documents, and which are read from any row on."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from zoo.data.readers.documents import ReaderConfig
from zoo.errors import VerificationError
from zoo.io.files import reading

TO_THE_END = -1  # The end of a segment that ends with its shard.


class Segment(NamedTuple):
    """A part of a shard that one lane reads in an epoch."""

    shard: int  # Number of the shard.
    start_row: int  # First row of the shard; in a stretch of bytes, rows count from 0.
    end_row: int  # Row after the last one.
    start_offset: int  # Byte at which it begins; 0 where rows are not found by bytes.
    end_offset: int  # Byte after its end.


class StreamRow(NamedTuple):
    """A document of a segment, and where the next one is."""

    text: str
    next_row: int
    next_offset: int


@dataclass(frozen=True)
class Shard(ABC):
    """A file of a stream; it can be pickled for another process."""

    file: Path
    size: int  # Bytes.

    def check(self, reader: ReaderConfig) -> None:
        """Check that the shard has a column of text; by default, read its first row."""
        segment = Segment(0, 0, TO_THE_END, 0, self.size)
        next(self.rows(segment, 0, 0, reader), None)

    def require_same_size(self) -> None:
        """Check that the file has as many bytes as when it was opened for the run."""
        with reading(self.file):
            size = self.file.stat().st_size
        if size != self.size:
            raise self.changed_size(size)

    def changed_size(self, size: int) -> VerificationError:
        """Return the error for a file that has another number of bytes now."""
        return VerificationError(
            f"{self.file} has {size:,} bytes, and had {self.size:,} when this process began to "
            "read it",
            "put the file back as it was, and resume the run",
        )

    @abstractmethod
    def segments(self, number: int, target_bytes: int) -> list[Segment]:
        """Return the parts that lanes can read apart.

        Args:
            number: number of this shard.
            target_bytes: size of a part, where the format can be cut.
        """

    @abstractmethod
    def rows(
        self, segment: Segment, row: int, offset: int, reader: ReaderConfig
    ) -> Iterator[StreamRow]:
        """Yield the rows of a segment.

        Args:
            segment: the segment.
            row: row to begin with.
            offset: its byte.
            reader: column of the text, and separation of documents.
        """


def whole_shard(number: int) -> Segment:
    """Return the segment of a shard that cannot be cut."""
    return Segment(number, 0, TO_THE_END, 0, TO_THE_END)


def segments_of_parts(
    number: int, parts: Iterable[tuple[int, int]], target_bytes: int
) -> list[Segment]:
    """Return the segments of a shard that is read in parts; small parts share a segment.

    Args:
        number: number of the shard.
        parts: number of rows and of bytes of each part.
        target_bytes: size from which on a segment is complete.
    """
    segments = []
    start = 0
    end = 0
    size = 0
    for rows, part_bytes in parts:
        end += rows
        size += part_bytes
        if size >= target_bytes:
            segments.append(Segment(number, start, end, 0, 0))
            start = end
            size = 0
    if end > start:
        segments.append(Segment(number, start, end, 0, 0))
    return segments


def require_text(value: Any, location: str, field: str) -> str:
    """Check that a value of the text's column is a string."""
    if not isinstance(value, str):
        shown = repr(value)[:100]
        raise VerificationError(
            f"{location}: {field!r} is not a string: {shown}", "leave that row out"
        )
    return value
