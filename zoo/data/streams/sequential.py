"""Shards that are only read from their beginning: compressed ones, and text without rows."""

from collections.abc import Iterator

from zoo.data.readers.documents import ReaderConfig, read_documents
from zoo.data.streams.shards import Segment, Shard, StreamRow, whole_shard
from zoo.errors import VerificationError
from zoo.overrides import override


class SequentialShard(Shard):
    """A file of any format that ``read_documents`` reads; one lane reads it as a whole.

    To go on at a row, the rows before it are read again, and not tokenized.
    """

    @override
    def segments(self, number: int, target_bytes: int) -> list[Segment]:
        return [whole_shard(number)]

    @override
    def rows(
        self, segment: Segment, row: int, offset: int, reader: ReaderConfig
    ) -> Iterator[StreamRow]:
        number = 0
        try:
            for text in read_documents([self.file], reader):
                number += 1
                if number > row:
                    yield StreamRow(text, number, 0)
        except VerificationError as error:
            if error.what.startswith((f"{self.file}, line", f"{self.file}, row", f"{self.file}:")):
                raise
            raise VerificationError(f"{error.what} (after row {number:,})", error.hint) from error
