"""Building of a corpus: texts are read, tokenized and written as a stream."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import msgspec
import numpy as np

from zoo.checkpoint import TOKENIZER
from zoo.data.corpus import (
    DEFAULT_EVAL_FRACTION,
    FORMAT_VERSION,
    GIVEN,
    TRAIN,
    VALIDATION,
    Corpus,
    CorpusRecord,
    SplitRecord,
)
from zoo.data.encoding import DocumentTokenizer, chunks, encode_all, join_lines, select_documents
from zoo.data.readers.documents import CORPUS_MANIFEST, ReaderConfig, expand_paths, read_documents
from zoo.data.shard_writer import SHARD_BYTES, SplitWriter
from zoo.data.split import ValidationSplit
from zoo.data.tokenizer import ExistingTokenizer, TokenizerToTrain
from zoo.errors import SourceError, UsageError, VerificationError
from zoo.io.cores import usable_cores
from zoo.io.digests.files import FileDigest, compute_blake3
from zoo.io.digests.self_digest import NO_DIGEST, add_digest
from zoo.io.files import reading
from zoo.io.json import encode_json
from zoo.io.output.atomic import atomic_directory
from zoo.io.paths import readable_name
from zoo.io.progress import progress_of_files
from zoo.version import __version__

Dtype = Literal["uint16", "uint32"]
SINGLE_PROCESS_BYTES = 8 << 20  # of sources; starting processes would take longer than it saves


@dataclass(frozen=True)
class CorpusSpec:
    """Sources and settings of a corpus."""

    paths: Sequence[str | Path]  # files, directories and patterns
    # an existing tokenizer, or one to train on the texts
    tokenizer: ExistingTokenizer | TokenizerToTrain
    # separation of files into documents and sentences
    reader: ReaderConfig = field(default_factory=ReaderConfig)
    # fraction of the documents to hold out; 0 for none
    eval_fraction: float = DEFAULT_EVAL_FRACTION
    # held-out files; if not empty, no other documents are held out
    eval_paths: Sequence[str | Path] = ()
    seed: int = 0  # seed of the selection of held-out documents

    @cached_property
    def files(self) -> dict[str, list[Path]]:
        """Files by split; ``validation`` only with ``eval_paths``."""
        files = {TRAIN: expand_paths(self.paths)}
        if self.eval_paths:
            files[VALIDATION] = expand_paths(self.eval_paths)
        return files

    @cached_property
    def sources(self) -> dict[str, FileDigest]:
        """Digests of all files at the first access."""
        return {
            str(file): FileDigest(bytes=_stamp(file)[2], blake3=compute_blake3(file))
            for files in self.files.values()
            for file in files
        }

    @cached_property
    def file_stats(self) -> dict[str, tuple[int, ...]]:
        """Inode, size and times of all files at the first access."""
        return {str(file): _stamp(file) for files in self.files.values() for file in files}

    def settings(self) -> dict[str, Any]:
        """Return everything that the corpus depends on, besides the files."""
        held = GIVEN if self.eval_paths else self.eval_fraction
        return {
            **msgspec.to_builtins(self.reader),
            "validation": held,
            "seed": self.seed,
            "tokenizer": self.tokenizer.settings(),
        }


def build(
    spec: CorpusSpec,
    target: Path,
    *,
    workers: int | None = None,  # by default all cores, or one up to ``SINGLE_PROCESS_BYTES``
    force: bool = False,
    shard_bytes: int = SHARD_BYTES,
) -> Corpus:
    """Build a corpus in a staging directory, and rename it when it is complete."""
    # The result only depends on the files, the reader's settings, the tokenizer and the seed, not
    # on the number of processes or the location of the files.
    texts = [file for files in spec.files.values() for file in files]
    with atomic_directory(target, force=force, sources=texts) as staging:
        stats = spec.file_stats  # before the digests: detects a change
        with progress_of_files("hashing", map(Path, stats)):
            sources = spec.sources
        with progress_of_files("reading", spec.files[TRAIN]):
            held = _held_out(spec)
        tokenizer = spec.tokenizer.make(lambda: _training_texts(spec, held))
        (staging / TOKENIZER).write_bytes(tokenizer.json)
        size = tokenizer.vocab_size()
        dtype: Dtype = "uint16" if size <= 1 << 16 else "uint32"
        encoder = DocumentTokenizer(
            tokenizer.json, tokenizer.info, spec.reader.sentence_splitter, dtype
        )
        names = [TRAIN, VALIDATION] if spec.eval_fraction or spec.eval_paths else [TRAIN]
        writers = {name: SplitWriter(staging, name, dtype, shard_bytes) for name in names}
        if not workers:
            small = sum(source.bytes for source in sources.values()) <= SINGLE_PROCESS_BYTES
            workers = 1 if small else usable_cores()
        splits = _write_splits(spec, encoder, held, writers, workers)
        for name, before in spec.file_stats.items():
            file = Path(name)
            now = _stamp(file) if file.is_file() else ()
            # if only the ctime is new, permissions may have changed: then the digest decides
            same = now[:4] == before[:4]
            if not same or (now != before and compute_blake3(file) != sources[name].blake3):
                raise VerificationError(f"{file} changed while it was read", "build again")
        record = CorpusRecord(
            zoo=FORMAT_VERSION,
            created_by=__version__,
            dtype=dtype,
            vocab_size=size,
            tokenizer=tokenizer.info,
            tokenizer_digest=tokenizer.settings()["blake3"],
            sources={readable_name(name): digest for name, digest in sources.items()},
            settings=spec.settings(),
            splits=splits,
            digest=NO_DIGEST,
        )
        (staging / CORPUS_MANIFEST).write_bytes(add_digest(encode_json(record)))
    return Corpus(target)


def _write_splits(
    spec: CorpusSpec,
    encoder: DocumentTokenizer,
    held: ValidationSplit,
    writers: dict[str, SplitWriter],
    workers: int,
) -> dict[str, SplitRecord]:
    """Write the tokens of all splits, and return their records."""
    try:
        every = [file for files in spec.files.values() for file in files]
        with progress_of_files("tokenizing", every):
            for name, files in spec.files.items():
                number = 0
                for encoded in encode_all(encoder, read_documents(files, spec.reader), workers):
                    count = len(encoded.documents)
                    out = np.ones(count, dtype=bool)
                    if name == TRAIN:
                        out = held.is_held_out(number, count)
                    number += count
                    writers[TRAIN].add(select_documents(encoded, ~out))
                    if out.any():
                        writers[VALIDATION].add(select_documents(encoded, out))
        splits = {name: writer.close() for name, writer in writers.items()}
    finally:
        for writer in writers.values():
            writer.abandon()
    for name, split in splits.items():
        if not split.tokens:
            raise UsageError(
                f"no text is left for {name}", "give more text, or another --eval-fraction"
            )
    return splits


def _held_out(plan: CorpusSpec) -> ValidationSplit:
    """Return the selection of held-out documents."""
    read = read_documents(plan.files[TRAIN], plan.reader)
    first = next(read, None)
    if first is None:
        raise SourceError(
            f"there is no text in {', '.join(map(str, plan.paths))}", "give files with text"
        )
    share = 0.0 if plan.eval_paths else plan.eval_fraction
    if not 0 <= share < 1:
        raise UsageError(
            f"--eval-fraction {share} is not a fraction of the documents", "such as 0.01"
        )
    return ValidationSplit((text for part in ([first], read) for text in part), share, plan.seed)


def _training_texts(plan: CorpusSpec, held: ValidationSplit) -> Iterator[list[str]]:
    """Yield the texts of the training split, which a tokenizer is trained on."""
    number = 0
    with progress_of_files("reading", plan.files[TRAIN]):
        for chunk in chunks(read_documents(plan.files[TRAIN], plan.reader)):
            selected = ~held.is_held_out(number, len(chunk))
            number += len(chunk)
            pairs = zip(chunk, selected.tolist(), strict=True)
            yield [join_lines(text) for text, keep in pairs if keep]


def _stamp(file: Path) -> tuple[int, ...]:
    with reading(file):
        state = file.stat()
    return state.st_dev, state.st_ino, state.st_size, state.st_mtime_ns, state.st_ctime_ns
