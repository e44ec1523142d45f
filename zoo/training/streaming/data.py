"""The data of a run on a stream: shards to train on, and a corpus to evaluate on."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
from blake3 import blake3

from zoo.data.cache import cached_corpus
from zoo.data.corpus import Corpus, Split, is_corpus
from zoo.data.encoding import DocumentTokenizer
from zoo.data.readers.documents import TEXT_FIELD, ReaderConfig, encode_documents
from zoo.data.streams.blocks import BlockSize
from zoo.data.streams.source import StreamSource
from zoo.data.streams.workers import BlockSource, InlineBlocks, WorkerBlocks
from zoo.data.tokenizer import ExistingTokenizer, TokenizerToTrain
from zoo.errors import UsageError
from zoo.io.cores import usable_cores
from zoo.io.digests.verified import file_blake3
from zoo.io.files import reading
from zoo.io.numbers import int_from_environment
from zoo.io.paths import readable_name
from zoo.io.scratch import scratch_directory
from zoo.objectives.base import ExampleDataset, Objective
from zoo.training.config.schema import DataConfig
from zoo.training.state.stream_record import ShardRecord, StreamRecord
from zoo.training.streaming.rows import StreamRows

# A block has text for at least so many rows, so that the padding of its last row is little.
MIN_BLOCK_ROWS = 64
CHARACTERS_PER_TOKEN = 4
MAX_BLOCK_CHARACTERS = 1 << 20
INLINE_BYTES = 8 << 20  # Of smaller sources, starting processes takes longer than it saves.
HASHED_BYTES = 1 << 30  # Of larger streams, sizes and times are recorded, and no digests.
HELD_OUT = "held-out.jsonl"
NOT_STREAMED = "leave --streaming out, or set data.sources.NAME.streaming=false"


@dataclass(frozen=True)
class StreamData:
    """Shards to train on."""

    source: StreamSource
    tokenizer: DocumentTokenizer
    shuffle_buffer: int
    workers: int | None = None  # Processes that tokenize; ``None`` for the cores of the machine.
    streams: int = 1  # Streams of the run, which share these cores.

    def record(self) -> StreamRecord:
        """Return the record of the shards as they are now."""
        records = []
        is_hashed = self.total_bytes <= HASHED_BYTES
        for shard in self.source.shards:
            with reading(shard.file):
                status = shard.file.stat()
            records.append(
                ShardRecord(
                    name=readable_name(str(shard.file)),
                    bytes=status.st_size,
                    modified=status.st_mtime_ns,
                    blake3=file_blake3(shard.file) if is_hashed else "",
                )
            )
        return StreamRecord(lanes=self.source.lanes, shards=records)

    @property
    def total_bytes(self) -> int:
        """Size of all shards in bytes."""
        return sum(shard.size for shard in self.source.shards)

    def contents_key(self) -> str:
        """Return a digest of the shards' names and sizes, which all hosts must have alike."""
        names = [(shard.file.name, shard.size) for shard in self.source.shards]
        return blake3(repr(names).encode()).hexdigest()

    def description(self) -> str:
        """Return the number and the size of the shards."""
        count = len(self.source.shards)
        files = "1 file" if count == 1 else f"{count:,} files"
        return f"{files} of {self.total_bytes / 1e6:,.1f} MB, streamed in {self.source.lanes} lanes"

    def rows(self, objective: Objective, example_rows: ExampleDataset, seed: int) -> StreamRows:
        """Return the rows that an objective packs.

        Args:
            objective: the objective.
            example_rows: rows of the objective, whose shapes the stream's rows have.
            seed: seed of the run.
        """

        def pack(split: Split, block_seed: int) -> ExampleDataset | None:
            return objective.block_dataset(split, block_seed, example_rows)

        characters = MIN_BLOCK_ROWS * objective.length * CHARACTERS_PER_TOKEN
        size = BlockSize(
            self.shuffle_buffer,
            min(characters, MAX_BLOCK_CHARACTERS),
            MAX_BLOCK_CHARACTERS,
        )
        return StreamRows(self.source, self._blocks(size), pack, seed)

    def _blocks(self, size: BlockSize) -> BlockSource:
        workers = self.workers
        if workers is None:
            processes = int_from_environment("LOCAL_WORLD_SIZE", 1)
            workers = max(1, usable_cores() // (processes * self.streams))
            if self.total_bytes <= INLINE_BYTES:
                workers = 0
        workers = min(workers, self.source.lanes)
        if not workers:
            return InlineBlocks(self.source, self.tokenizer, size)
        return WorkerBlocks(self.source, self.tokenizer, size, workers)


def require_tokenizer(tokenizer: ExistingTokenizer | TokenizerToTrain) -> ExistingTokenizer:
    """Return the tokenizer of a stream, which has to exist."""
    if isinstance(tokenizer, TokenizerToTrain):
        raise UsageError(
            "a stream takes a tokenizer that exists, and none is named",
            "`zoo corpus build SAMPLE -o sample` trains one on a part of the texts, and "
            "--tokenizer sample reads with it",
        )
    return tokenizer


def open_stream(
    data: DataConfig,
    tokenizer: ExistingTokenizer,
    *,
    seed: int,
    paths: Sequence[str],
    eval_paths: Sequence[str],
) -> tuple[StreamData, Corpus]:
    """Return the shards of a stream, and the corpus of its held-out documents, which is built now.

    Args:
        data: settings of the data.
        tokenizer: the tokenizer.
        seed: seed of the order.
        paths: the files to read.
        eval_paths: held-out files; empty to hold out the first documents of ``paths``.
    """
    for path in paths:
        if is_corpus(Path(path)):
            raise UsageError(f"{path} is a built corpus, which is not streamed", NOT_STREAMED)
    stream = data.stream
    source = StreamSource.open(paths, data.reader, lanes=stream.lanes, seed=seed)
    if eval_paths:
        corpus = cached_corpus(eval_paths, tokenizer, reader=data.reader, eval_fraction=0)
        _require_same_tokenizer(corpus, tokenizer)
    else:
        documents, source = source.hold_out(stream.eval_documents)
        corpus = _held_out_corpus(documents, tokenizer, data.reader)
    vocabulary_size = tokenizer.vocab_size()
    dtype = "uint16" if vocabulary_size <= 1 << 16 else "uint32"
    encoder = DocumentTokenizer(
        tokenizer.json, tokenizer.info, data.reader.sentence_splitter, dtype
    )
    return StreamData(source, encoder, stream.shuffle_buffer), corpus


def _require_same_tokenizer(corpus: Corpus, tokenizer: ExistingTokenizer) -> None:
    if corpus.record.tokenizer_digest != tokenizer.settings()["blake3"]:
        raise UsageError(
            f"the corpus in {corpus.path} has another tokenizer than the stream",
            f"--tokenizer {corpus.path} reads the stream with the corpus's",
        )


def _held_out_corpus(
    documents: Sequence[str], tokenizer: ExistingTokenizer, reader: ReaderConfig
) -> Corpus:
    """Return the corpus of some documents."""
    reader = msgspec.structs.replace(reader, text_field=TEXT_FIELD)
    with scratch_directory() as scratch:
        file = scratch / HELD_OUT
        file.write_bytes(encode_documents(documents))
        return cached_corpus([file], tokenizer, reader=reader, eval_fraction=0)


def require_same_shards(stream: StreamData, run: Path, began: StreamRecord | None) -> None:
    """Check that the shards of a stream are those that a run began with."""
    if began is None:
        raise UsageError(f"{run} does not read a stream", "leave data.streaming out")
    now = stream.record()
    hint = "put the file back as it was, or begin another run"
    if len(began.shards) != len(now.shards):
        raise UsageError(
            f"{run} began with {len(began.shards)} files, and there are {len(now.shards)}",
            "name the files that it began with, or begin another run",
        )
    for shard, current in zip(began.shards, now.shards, strict=True):
        if Path(shard.name).name != Path(current.name).name:
            raise UsageError(f"{run} began with {shard.name}, and reads {current.name}", hint)
        if shard.bytes != current.bytes:
            raise UsageError(
                f"{current.name} has {current.bytes:,} bytes, and had {shard.bytes:,} when {run} "
                "began",
                hint,
            )
        has_same_digest = shard.blake3 != "" and shard.blake3 == current.blake3
        is_unchanged = not shard.blake3 and shard.modified == current.modified
        if not has_same_digest and not is_unchanged:
            raise UsageError(
                f"{current.name} was changed since {run} began",
                hint if shard.blake3 else f"{hint}; cp -p and rsync -a keep the times of files",
            )
