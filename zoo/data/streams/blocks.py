"""Blocks of tokenized documents, which lanes read one after another.

A block is what a lane shuffles at once. It begins where the block before it ends, and what is in it
only depends on where it begins: a run that is resumed reads the block of its position again, and
has the same rows.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from blake3 import blake3
from numpy.typing import NDArray

from zoo.data.corpus import Split
from zoo.data.encoding import DocumentTokenizer, EncodedDocuments, chunks
from zoo.data.readers.documents import document_parts
from zoo.data.streams.shards import StreamRow
from zoo.data.streams.source import StreamSource

START = -1  # The row of a position at the beginning of a segment.


class Position(NamedTuple):
    """Where a lane goes on reading."""

    epoch: int = 0
    place: int = 0  # Place of the segment in the lane's order of the epoch.
    row: int = START  # Row of the segment.
    offset: int = 0  # Byte of the row in its shard, where the format is read by bytes.


@dataclass(frozen=True)
class BlockSize:
    """When a block is full."""

    documents: int  # Documents that are shuffled together, ...
    min_characters: int  # ... if they have so many characters, ...
    max_characters: int  # ... and at most about so many.

    def is_reached(self, documents: int, characters: int) -> bool:
        """Return whether a block of so many documents and characters is full."""
        if characters >= self.max_characters:
            return True
        return documents >= self.documents and characters >= self.min_characters


@dataclass(frozen=True)
class TokenBlock:
    """The tokenized documents of a block; arrays are those of ``Split``."""

    tokens: NDArray[np.unsignedinteger]  # Token ids, (tokens,).
    sentences: NDArray[np.int64]  # Start of each sentence, and the end, (sentences + 1,).
    documents: NDArray[np.int64]  # First sentence of each document, and the end, (documents + 1,).
    start: Position  # Where it begins.
    end: Position  # Where the next block begins.

    def split(self) -> Split:
        """Return the documents as a split in memory."""
        return Split([self.tokens], self.sentences, self.documents)

    def digest(self) -> int:
        """Return 63 bits of a digest of the documents."""
        hashed = blake3(self.tokens.tobytes())
        hashed.update(self.sentences.tobytes())
        hashed.update(self.documents.tobytes())
        return int.from_bytes(hashed.digest(8), "little") >> 1


class BlockReader:
    """Reads and tokenizes the blocks of lanes; the shard of each lane stays open."""

    def __init__(
        self, source: StreamSource, tokenizer: DocumentTokenizer, block_size: BlockSize
    ) -> None:
        self.source = source
        self.tokenizer = tokenizer
        self.block_size = block_size
        self._cursors: dict[int, LaneCursor] = {}

    def read(self, lane: int, start: Position) -> TokenBlock:
        """Return the block of a lane that begins at a position."""
        cursor = self._cursors.get(lane)
        if cursor is None or cursor.position != start:
            cursor = LaneCursor(self.source, lane, start)
            self._cursors[lane] = cursor
        documents: list[str] = []
        characters = 0
        # A block ends with its epoch, so that no document is in it twice.
        while not self.block_size.is_reached(len(documents), characters):
            text = cursor.read_text()
            if text is None:
                break
            for part in document_parts(text):
                if part and not part.isspace():
                    documents.append(part)
                    characters += len(part)
        encoded_chunks = [self.tokenizer.encode(chunk) for chunk in chunks(documents)]
        return _block(encoded_chunks, self.tokenizer.dtype, start, cursor.position)


def _block(
    encoded_chunks: Sequence[EncodedDocuments], dtype: str, start: Position, end: Position
) -> TokenBlock:
    """Return the block of some tokenized documents, without those that have no tokens."""
    tokens = [np.zeros(0, dtype)]
    sentence_sizes = [np.zeros(1, np.int64)]
    document_sizes = [np.zeros(1, np.int64)]
    for encoded in encoded_chunks:
        tokens.append(encoded.tokens)
        sentence_sizes.append(encoded.sentences)
        document_sizes.append(encoded.documents[encoded.documents > 0])
    return TokenBlock(
        np.concatenate(tokens),
        np.cumsum(np.concatenate(sentence_sizes)),
        np.cumsum(np.concatenate(document_sizes)),
        start,
        end,
    )


class LaneCursor:
    """The place of a lane in its segments, with the open shard."""

    def __init__(self, source: StreamSource, lane: int, position: Position) -> None:
        self.source = source
        self.lane = lane
        self.position = position
        self._rows: Iterator[StreamRow] | None = None

    def read_text(self) -> str | None:
        """Return the next document, or ``None`` at the end of an epoch, which it leaves behind."""
        while True:
            if self._rows is None:
                self._rows = self._open()
            row = next(self._rows, None)
            if row is not None:
                self.position = self.position._replace(row=row.next_row, offset=row.next_offset)
                return row.text
            self._rows = None
            epoch = self.position.epoch
            place = self.position.place + 1
            if place == self.source.lane_size(self.lane):
                self.position = Position(epoch + 1)
                return None
            self.position = Position(epoch, place)

    def _open(self) -> Iterator[StreamRow]:
        position = self.position
        segment = self.source.segment(self.lane, position.epoch, position.place)
        row = position.row
        offset = position.offset
        if row == START:
            row = segment.start_row
            offset = segment.start_offset
        shard = self.source.shards[segment.shard]
        shard.require_same_size()
        return shard.rows(segment, row, offset, self.source.reader)
