"""A source of a stream: its shards, their segments, and the order in which lanes read them.

A stream has a fixed number of *lanes*, which are part of the run's record, like the workers of a
data loader of which there is always the same number: row n of the stream is row n // lanes of lane
n mod lanes. In each epoch the segments of all shards are permuted by a key, and dealt to the lanes.
A lane that has read its segments goes on with the next epoch.
"""

import functools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from zoo.data.order import KeyedPermutation
from zoo.data.readers.documents import (
    JSON_LINES,
    ReaderConfig,
    document_parts,
    expand_paths,
)
from zoo.data.readers.parquet import PARQUET
from zoo.data.readers.text_io import TAR_GZIP
from zoo.data.streams.arrow import ARROW, ArrowShard, dataset_files
from zoo.data.streams.json_lines import JsonLinesShard
from zoo.data.streams.mds import MDS, mds_shards
from zoo.data.streams.parquet import ParquetShard
from zoo.data.streams.sequential import SequentialShard
from zoo.data.streams.shards import Segment, Shard
from zoo.data.streams.tar import TAR, TarShard
from zoo.errors import SourceError, UsageError
from zoo.io.files import reading

# Segments per lane that a source is cut into, if it is large enough, and their sizes in bytes.
SEGMENTS_PER_LANE = 16
MIN_SEGMENT_BYTES = 1 << 13
MAX_SEGMENT_BYTES = 1 << 26


@dataclass(frozen=True)
class StreamSource:
    """Shards of text, cut into segments; it can be pickled for another process."""

    shards: tuple[Shard, ...]
    segments: tuple[Segment, ...]  # In the order of the shards.
    lanes: int
    reader: ReaderConfig
    seed: int

    @classmethod
    def open(
        cls, paths: Sequence[str | Path], reader: ReaderConfig, *, lanes: int, seed: int
    ) -> "StreamSource":
        """Return the source of some files, whose columns are checked.

        Args:
            paths: files, directories and patterns.
            reader: column of the text, and separation of documents.
            lanes: number of lanes; a source of fewer segments has fewer.
            seed: seed of the order.
        """
        shards = find_shards(paths)
        for shard in shards:
            shard.check(reader)
        total = sum(shard.size for shard in shards)
        target = total // (lanes * SEGMENTS_PER_LANE)
        target = max(MIN_SEGMENT_BYTES, min(target, MAX_SEGMENT_BYTES))
        segments: list[Segment] = []
        for number, shard in enumerate(shards):
            segments.extend(shard.segments(number, target))
        if not segments:
            raise SourceError(f"there is no text in {', '.join(map(str, paths))}", "name others")
        return cls(tuple(shards), tuple(segments), min(lanes, len(segments)), reader, seed)

    def lane_size(self, lane: int) -> int:
        """Return the number of segments that a lane reads in an epoch."""
        return -(-(len(self.segments) - lane) // self.lanes)

    def segment(self, lane: int, epoch: int, place: int) -> Segment:
        """Return a segment of a lane: the one at a place of its order in an epoch."""
        order = _epoch_order(len(self.segments), self.seed, epoch)
        return self.segments[order[lane + place * self.lanes]]

    def hold_out(self, count: int) -> tuple[list[str], "StreamSource"]:
        """Return the first documents, in the order of the shards, and a source of all others."""
        documents: list[str] = []
        remaining_segments = list(self.segments)
        while len(documents) < count and remaining_segments:
            segment = remaining_segments.pop(0)
            shard = self.shards[segment.shard]
            rows = shard.rows(segment, segment.start_row, segment.start_offset, self.reader)
            for row in rows:
                documents.append(row.text)
                if len(documents) == count:
                    remaining_segments.insert(
                        0,
                        segment._replace(start_row=row.next_row, start_offset=row.next_offset),
                    )
                    break
        if not remaining_segments:
            raise UsageError(
                f"{count:,} documents are held out, and there are {len(documents):,}",
                "hold out fewer: --set data.stream.eval_documents=N",
            )
        lanes = min(self.lanes, len(remaining_segments))
        return documents, replace(self, segments=tuple(remaining_segments), lanes=lanes)


@functools.lru_cache(maxsize=16)
def _epoch_order(count: int, seed: int, epoch: int) -> KeyedPermutation:
    return KeyedPermutation(count, seed, "segments", epoch)


def read_first_documents(
    paths: Sequence[str | Path], reader: ReaderConfig, max_characters: int
) -> list[str]:
    """Return the first documents of some files, which together have about so many characters."""
    documents: list[str] = []
    characters = 0
    for number, shard in enumerate(find_shards(paths)):
        for segment in shard.segments(number, MAX_SEGMENT_BYTES):
            for row in shard.rows(segment, segment.start_row, segment.start_offset, reader):
                for part in document_parts(row.text):
                    if part and not part.isspace():
                        documents.append(part)
                        characters += len(part)
                if characters >= max_characters:
                    return documents
    if not documents:
        raise SourceError(f"there is no text in {', '.join(map(str, paths))}", "name others")
    return documents


def find_shards(paths: Sequence[str | Path]) -> list[Shard]:
    """Return the shards of files, directories and patterns.

    Folders of MDS and of ``Dataset.save_to_disk`` list their shards; the format of other files
    follows from their names.
    """
    named_files = {Path(path).expanduser() for path in paths}
    shards: list[Shard] = []
    # Folder -> whether its shards are listed.
    folders: dict[Path, bool] = {}
    for file in expand_paths(paths):
        if file not in named_files:
            folder = file.parent
            if folder not in folders:
                listed_shards = _listed_shards(folder)
                folders[folder] = listed_shards is not None
                shards.extend(listed_shards or ())
            if folders[folder]:
                continue
        shards.append(_shard_type(file)(file, _size(file)))
    return [shard for shard in shards if shard.size]


def _listed_shards(folder: Path) -> list[Shard] | None:
    """Return the shards that a folder lists; ``None`` if it lists none."""
    files = dataset_files(folder)
    if files is not None:
        return [ArrowShard(file, _size(file)) for file in files]
    return mds_shards(folder)


def _shard_type(file: Path) -> type[Shard]:
    """Return the format of a file by its name."""
    name = file.name.lower()
    if name.endswith(JSON_LINES):
        return JsonLinesShard
    if name.endswith(PARQUET):
        return ParquetShard
    if name.endswith(ARROW):
        return ArrowShard
    if name.endswith(MDS):
        raise UsageError(f"{file} is a shard of MDS", "name its folder, which has an index.json")
    if name.endswith(TAR_GZIP) or TAR in (file.suffix.lower(), Path(file.stem).suffix.lower()):
        return TarShard
    return SequentialShard


def _size(file: Path) -> int:
    with reading(file):
        return file.stat().st_size
