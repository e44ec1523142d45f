"""JSON lines that are not compressed: any line is found by its byte."""

import functools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from zoo.data.readers.documents import ReaderConfig, json_row_error
from zoo.data.streams.shards import Segment, Shard, StreamRow
from zoo.io.files import open_regular, reading
from zoo.io.limits import MAX_ROW_BYTES
from zoo.io.sizes import check_size
from zoo.overrides import override

BYTE_ORDER_MARK = b"\xef\xbb\xbf"
COUNT_BYTES = 1 << 20  # Bytes whose lines are counted at once.


class JsonLinesShard(Shard):
    """A file with a JSON object on each line."""

    @override
    def segments(self, number: int, target_bytes: int) -> list[Segment]:
        starts = [0]
        with open_regular(self.file) as file, reading(self.file):
            while starts[-1] + target_bytes < self.size:
                # A line that begins before the boundary belongs to the segment before it.
                file.seek(starts[-1] + target_bytes - 1)
                file.readline(MAX_ROW_BYTES + 1)
                starts.append(min(file.tell(), self.size))
        if len(starts) > 1 and starts[-1] == self.size:
            starts.pop()
        ends = [*starts[1:], self.size]
        segments = []
        for start, end in zip(starts, ends, strict=True):
            segments.append(Segment(number, 0, -1, start, end))
        return segments

    @override
    def rows(
        self, segment: Segment, row: int, offset: int, reader: ReaderConfig
    ) -> Iterator[StreamRow]:
        decoder = _decoder(reader.text_field)
        with open_regular(self.file) as file, reading(self.file):
            file.seek(offset)
            while offset < segment.end_offset:
                line = file.readline(MAX_ROW_BYTES + 1)
                if not line:
                    raise self.changed_size(offset)
                start = offset
                what = f"length of the line at byte {start:,} in bytes"
                check_size(
                    self.file, what, len(line), MAX_ROW_BYTES, hint="each line must be a row"
                )
                offset += len(line)
                if start == 0:
                    line = line.removeprefix(BYTE_ORDER_MARK)
                if line.isspace():
                    continue
                try:
                    text: str = decoder.decode(line).text
                    text.encode()
                except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
                    number = count_lines(self.file, start) + 1
                    content = line.decode("utf-8", "replace")
                    field = reader.text_field
                    raise json_row_error(self.file, number, content, field, error) from error
                row += 1
                yield StreamRow(text, row, offset)


@functools.cache
def _decoder(field: str) -> "msgspec.json.Decoder[Any]":
    """Return a decoder of the text of a line, which skips all other fields unread."""
    row_type = msgspec.defstruct("StreamRow", [("text", str, msgspec.field(name=field))])
    return msgspec.json.Decoder(row_type)


def count_lines(path: Path, end: int) -> int:
    """Return the number of lines that end before a byte of a file."""
    lines = 0
    with open_regular(path) as file, reading(path):
        while end > 0:
            block = file.read(min(end, COUNT_BYTES))
            if not block:
                break
            lines += block.count(b"\n")
            end -= len(block)
    return lines


def count_rows(path: Path, offsets: Sequence[int]) -> list[int]:
    """Return the number of rows before each of several bytes where rows begin, in their order."""
    counts = []
    rows = 0
    position = 0
    with open_regular(path) as file, reading(path):
        for offset in offsets:
            while position < offset:
                line = file.readline(MAX_ROW_BYTES + 1)
                if not line:
                    break
                if position == 0:
                    rows += not line.removeprefix(BYTE_ORDER_MARK).isspace()
                else:
                    rows += not line.isspace()
                position += len(line)
            counts.append(rows)
    return counts
