"""The rows of a stream: of each lane, blocks of documents that an objective packs."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from zoo.data.corpus import Split
from zoo.data.order import KeyedPermutation
from zoo.data.rng import key_bytes
from zoo.data.streams.blocks import Position, TokenBlock
from zoo.data.streams.source import StreamSource
from zoo.data.streams.workers import BlockSource
from zoo.errors import UsageError, VerificationError
from zoo.objectives.base import Example, ExampleDataset, ExampleSource
from zoo.overrides import override

BlockPacker = Callable[[Split, int], ExampleDataset | None]  # (documents, seed) -> rows, if any
# Columns of the table of lanes in a checkpoint.
COLUMNS = ("epoch", "place", "shard", "row", "offset", "block", "first_row", "digest")
MAX_EMPTY_EPOCHS = 8  # Epochs in which a lane may have no row, before this is an error.
UNREAD = -1  # All columns of a lane that has not begun.


class LaneState(NamedTuple):
    """The block that a lane is in."""

    position: Position = Position()  # Where it begins.
    block: int = 0  # Its number.
    first_row: int = 0  # Its first row of the lane.
    digest: int = UNREAD  # Digest of its documents; ``UNREAD`` before they were read.


class StreamRows(ExampleSource):
    """Rows of a stream by index: row n is row n // lanes of lane n mod lanes.

    Each lane moves forwards. An index before its block is found by reading from the state that it
    began with.

    Args:
        source: the shards.
        blocks: reads and tokenizes their documents.
        pack: packs the documents of a block into rows.
        seed: seed of the run.
    """

    def __init__(
        self, source: StreamSource, blocks: BlockSource, pack: BlockPacker, seed: int
    ) -> None:
        self.source = source
        self.blocks = blocks
        self.lanes = [StreamLane(number, self, pack, seed) for number in range(source.lanes)]

    @override
    def example(self, index: int, rng: np.random.Generator) -> Example:
        row, lane = divmod(index, len(self.lanes))
        return self.lanes[lane].example(row, rng)

    def state_table(self) -> Tensor:
        """Return the states of the lanes that this process reads, (lanes, columns), int64."""
        return torch.tensor([lane.state_row() for lane in self.lanes], dtype=torch.int64)

    def unread_table(self) -> Tensor:
        """Return the states of lanes that were not read, (lanes, columns), int64."""
        return torch.full((len(self.lanes), len(COLUMNS)), UNREAD, dtype=torch.int64)

    def load_state_table(self, table: Tensor) -> None:
        """Begin with the states of a checkpoint."""
        if table.shape != (len(self.lanes), len(COLUMNS)):
            raise VerificationError(
                f"the checkpoint has {len(table)} lanes, and the stream has {len(self.lanes)}",
                "put the files back as they were, or begin another run",
            )
        for lane, values in zip(self.lanes, table.tolist(), strict=True):
            lane.load_state_row(values)


@dataclass(frozen=True)
class PackedBlock:
    """A block of documents that is packed into rows."""

    rows: ExampleDataset
    order: KeyedPermutation  # Order of the rows.


class StreamLane:
    """A lane of a stream, which has one block in memory."""

    def __init__(self, number: int, stream: StreamRows, pack: BlockPacker, seed: int) -> None:
        self.number = number
        self.stream = stream
        self.pack = pack
        self.seed = seed
        self.initial_state = LaneState()
        self.state = self.initial_state
        self._packed: PackedBlock | None = None
        self._end = Position()  # Where the next block begins.

    def example(self, row: int, rng: np.random.Generator) -> Example:
        """Return the example of a row of the lane."""
        if row < self.state.first_row:
            self.state = self.initial_state
            self._packed = None
        packed = self._packed
        if packed is None:
            packed = self._read_block(self.state)
        while row >= self.state.first_row + len(packed.rows):
            packed = self._read_block(
                LaneState(self._end, self.state.block + 1, self.state.first_row + len(packed.rows))
            )
        return packed.rows.example(packed.order[row - self.state.first_row], rng)

    def _read_block(self, state: LaneState) -> PackedBlock:
        """Read the first block from a state on that has a row, and pack it."""
        blocks = self.stream.blocks
        last_epoch = state.position.epoch + MAX_EMPTY_EPOCHS
        while True:
            block = blocks.receive(self.number, state.position)
            blocks.request(self.number, block.end)
            digest = block.digest()
            if state.digest not in (UNREAD, digest):
                raise self._changed(state)
            packed = self._pack_block(block, state.block)
            if packed is not None:
                break
            if block.end.epoch > last_epoch:
                raise UsageError(
                    f"lane {self.number} of the stream has no text that fills a row",
                    "leave files without text out",
                )
            state = state._replace(position=block.end, digest=UNREAD)
        self.state = state._replace(digest=digest)
        self._end = block.end
        self._packed = packed
        return packed

    def _pack_block(self, block: TokenBlock, number: int) -> PackedBlock | None:
        """Pack a block; ``None`` if it has no rows."""
        if len(block.documents) == 1:
            return None
        seed = int.from_bytes(key_bytes(self.seed, ("stream", self.number, number), 7), "little")
        rows = self.pack(block.split(), seed)
        if rows is None or not len(rows):
            return None
        return PackedBlock(rows, KeyedPermutation(len(rows), seed, "rows"))

    def _changed(self, state: LaneState) -> VerificationError:
        """Return the error for documents that are not those of the checkpoint."""
        position = state.position
        segment = self.stream.source.segment(self.number, position.epoch, position.place)
        file = self.stream.source.shards[segment.shard].file
        return VerificationError(
            f"the stream from {file}, row {max(position.row, 0) + 1:,} on is not what the run read",
            "put the files back as they were, or begin another run",
        )

    def state_row(self) -> list[int]:
        """Return the columns of this lane in a checkpoint."""
        state = self.state
        if self._packed is None:
            return [UNREAD] * len(COLUMNS)
        return self._columns(state)

    def _columns(self, state: LaneState) -> list[int]:
        position = state.position
        segment = self.stream.source.segment(self.number, position.epoch, position.place)
        return [
            position.epoch,
            position.place,
            segment.shard,
            position.row,
            position.offset,
            state.block,
            state.first_row,
            state.digest,
        ]

    def load_state_row(self, values: list[int]) -> None:
        """Begin with the columns of a checkpoint."""
        epoch, place, shard, row, offset, block, first_row, digest = values
        self._packed = None
        self.initial_state = LaneState()
        if epoch != UNREAD:
            position = Position(epoch, place, row, offset)
            self.initial_state = LaneState(position, block, first_row, digest)
            if self._columns(self.initial_state)[2] != shard:
                raise VerificationError(
                    f"lane {self.number} of the checkpoint is in another shard",
                    "put the files back as they were, or begin another run",
                )
        self.state = self.initial_state
