"""Building of a corpus: texts are read, tokenized and written as a stream."""

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
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

LOG = logging.getLogger("zoo")
Dtype = Literal["uint16", "uint32"]
# Up to so many bytes of sources, starting processes takes longer than it saves.
SINGLE_PROCESS_BYTES = 8 << 20


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
            for file in self.all_files
        }

    @property
    def all_files(self) -> list[Path]:
        """Files of all splits."""
        return list(chain.from_iterable(self.files.values()))

    @cached_property
    def file_stats(self) -> dict[str, tuple[int, ...]]:
        """Inode, size and times of all files at the first access."""
        return {str(file): _stamp(file) for file in self.all_files}

    def settings(self) -> dict[str, Any]:
        """Return everything that the corpus depends on, besides the files."""
        return {
            **msgspec.to_builtins(self.reader),
            "validation": GIVEN if self.eval_paths else self.eval_fraction,
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
    """Build a corpus in a staging directory, and rename it when it is complete.

    The result only depends on the files, the reader's settings, the tokenizer and the seed, not on
    the number of processes or the location of the files.
    """
    LOG.info("tokenizer: %s", spec.tokenizer.description())
    with atomic_directory(target, force=force, sources=spec.all_files) as staging:
        # The stats are read before the digests, to detect a change.
        stats = spec.file_stats
        with progress_of_files("hashing", map(Path, stats)):
            sources = spec.sources
        with progress_of_files("reading", spec.files[TRAIN]):
            validation_split = _validation_split(spec)
        tokenizer = spec.tokenizer.make(lambda: _training_texts(spec, validation_split))
        (staging / TOKENIZER).write_bytes(tokenizer.json)
        vocab_size = tokenizer.vocab_size()
        dtype: Dtype = "uint16" if vocab_size <= 1 << 16 else "uint32"
        encoder = DocumentTokenizer(
            tokenizer.json, tokenizer.info, spec.reader.sentence_splitter, dtype
        )
        names = [TRAIN]
        if spec.eval_fraction or spec.eval_paths:
            names.append(VALIDATION)
        writers = {name: SplitWriter(staging, name, dtype, shard_bytes) for name in names}
        if not workers:
            workers = usable_cores()
            if sum(source.bytes for source in sources.values()) <= SINGLE_PROCESS_BYTES:
                workers = 1
        splits = _write_splits(spec, encoder, validation_split, writers, workers)
        _require_unchanged(spec)
        record = CorpusRecord(
            zoo=FORMAT_VERSION,
            created_by=__version__,
            dtype=dtype,
            vocab_size=vocab_size,
            tokenizer=tokenizer.info,
            tokenizer_digest=tokenizer.settings()["blake3"],
            sources={readable_name(name): digest for name, digest in sources.items()},
            settings=spec.settings(),
            splits=splits,
            digest=NO_DIGEST,
        )
        (staging / CORPUS_MANIFEST).write_bytes(add_digest(encode_json(record)))
    return Corpus(target)


def _require_unchanged(spec: CorpusSpec) -> None:
    """Check that no file changed since its digest was computed."""
    for name, previous_stamp in spec.file_stats.items():
        file = Path(name)
        stamp = _stamp(file) if file.is_file() else ()
        is_unchanged = stamp == previous_stamp
        # If only the ctime is new, permissions may have changed: then the digest decides.
        if not is_unchanged and stamp[:4] == previous_stamp[:4]:
            is_unchanged = compute_blake3(file) == spec.sources[name].blake3
        if not is_unchanged:
            raise VerificationError(f"{file} changed while it was read", "build again")


def _write_splits(
    spec: CorpusSpec,
    encoder: DocumentTokenizer,
    validation_split: ValidationSplit,
    writers: dict[str, SplitWriter],
    workers: int,
) -> dict[str, SplitRecord]:
    """Write the tokens of all splits, and return their records."""
    try:
        with progress_of_files("tokenizing", spec.all_files):
            for name, files in spec.files.items():
                number = 0
                for encoded in encode_all(encoder, read_documents(files, spec.reader), workers):
                    count = len(encoded.documents)
                    is_held_out = np.ones(count, dtype=bool)
                    if name == TRAIN:
                        is_held_out = validation_split.is_held_out(number, count)
                    number += count
                    writers[TRAIN].add(select_documents(encoded, ~is_held_out))
                    if is_held_out.any():
                        writers[VALIDATION].add(select_documents(encoded, is_held_out))
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


def _validation_split(spec: CorpusSpec) -> ValidationSplit:
    """Return the selection of held-out documents."""
    documents = read_documents(spec.files[TRAIN], spec.reader)
    first_document = next(documents, None)
    if first_document is None:
        raise SourceError(
            f"there is no text in {', '.join(map(str, spec.paths))}", "give files with text"
        )
    fraction = 0.0 if spec.eval_paths else spec.eval_fraction
    if not 0 <= fraction < 1:
        raise UsageError(
            f"--eval-fraction {fraction} is not a fraction of the documents", "such as 0.01"
        )
    return ValidationSplit(chain([first_document], documents), fraction, spec.seed)


def _training_texts(spec: CorpusSpec, validation_split: ValidationSplit) -> Iterator[list[str]]:
    """Yield the texts of the training split, which a tokenizer is trained on."""
    number = 0
    with progress_of_files("reading", spec.files[TRAIN]):
        for chunk in chunks(read_documents(spec.files[TRAIN], spec.reader)):
            is_held_out = validation_split.is_held_out(number, len(chunk))
            number += len(chunk)
            texts = []
            for text, held_out in zip(chunk, is_held_out.tolist(), strict=True):
                if not held_out:
                    texts.append(join_lines(text))
            yield texts


def _stamp(file: Path) -> tuple[int, ...]:
    with reading(file):
        state = file.stat()
    return state.st_dev, state.st_ino, state.st_size, state.st_mtime_ns, state.st_ctime_ns
