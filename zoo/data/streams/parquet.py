"""Parquet: row groups are read apart."""

from collections.abc import Iterator

from zoo.data.readers.documents import ReaderConfig, check_parquet_text
from zoo.data.readers.parquet import open_parquet
from zoo.data.streams.shards import Segment, Shard, StreamRow, require_text, segments_of_parts
from zoo.overrides import override

BATCH_ROWS = 256  # Rows that are decoded together.
PAGE_BYTES = 1 << 20  # Bytes that are read together.


class ParquetShard(Shard):
    """A Parquet file; a segment is a row group, or several small ones."""

    @override
    def check(self, reader: ReaderConfig) -> None:
        with open_parquet(self.file) as table:
            check_parquet_text(self.file, table, reader.text_field)

    @override
    def segments(self, number: int, target_bytes: int) -> list[Segment]:
        with open_parquet(self.file) as table:
            groups = map(table.metadata.row_group, range(table.metadata.num_row_groups))
            parts = [(group.num_rows, group.total_byte_size) for group in groups]
        return segments_of_parts(number, parts, target_bytes)

    @override
    def rows(
        self, segment: Segment, row: int, offset: int, reader: ReaderConfig
    ) -> Iterator[StreamRow]:
        field = reader.text_field
        options = {"read_dictionary": [field], "pre_buffer": False, "buffer_size": PAGE_BYTES}
        with open_parquet(self.file, **options) as table:
            groups: list[int] = []
            first_row = 0  # First row of the groups that are read.
            end = 0
            for index in range(table.metadata.num_row_groups):
                start = end
                end += table.metadata.row_group(index).num_rows
                if end > row and start < segment.end_row:
                    if not groups:
                        first_row = start
                    groups.append(index)
            if not groups:
                return
            number = first_row
            batches = table.iter_batches(batch_size=BATCH_ROWS, columns=[field], row_groups=groups)
            for batch in batches:
                values = batch.column(0)
                skipped = min(max(row - number, 0), len(values))
                number += skipped
                for value in values[skipped:]:
                    number += 1
                    if number > segment.end_row:
                        return
                    location = f"{self.file}, row {number}"
                    text = require_text(value.as_py(), location, field)
                    yield StreamRow(text, number, 0)
