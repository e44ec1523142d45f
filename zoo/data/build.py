"""Building of a corpus: texts are read, split, tokenized and written as a stream."""

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any, Literal

import msgspec
import numpy as np
from blake3 import blake3
from numpy.typing import NDArray

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
from zoo.data.encoding import (
    DocumentTokenizer,
    EncodedDocuments,
    chunks,
    encode_all,
    join_lines,
    select_documents,
)
from zoo.data.normalization import NormalizationSample
from zoo.data.readers.documents import CORPUS_MANIFEST, ReaderConfig, expand_paths, read_documents
from zoo.data.rng import generator
from zoo.data.tokenizer import ExistingTokenizer, TokenizerToTrain
from zoo.errors import SourceError, UsageError, VerificationError
from zoo.io.cores import usable_cores
from zoo.io.digests.files import FileDigest, compute_blake3
from zoo.io.digests.self_digest import NO_DIGEST, add_digest, check_digest
from zoo.io.files import hash_reads, read_regular, reading
from zoo.io.json import encode_json, parse_json
from zoo.io.limits import MAX_JSON_BYTES
from zoo.io.output.atomic import atomic_directory
from zoo.io.output.overwrite import CLEANING_RECORD
from zoo.io.paths import readable_name
from zoo.io.progress import progress_of_files
from zoo.version import __version__

BLOCK = 1 << 16


class ValidationSplit:
    """Selects a fraction of the documents, and at least one.

    Each document is drawn independently, so that documents appended later do not change the
    selection.
    """

    def __init__(self, documents: Iterable[str], fraction: float, seed: int) -> None:
        self.fraction = fraction
        self.seed = seed
        self._block = -1  # Number of the block of ``_draws``.
        self._draws = np.zeros(0)
        # Index of the document that is held out if none is drawn, or -1.
        self._substitute = -1
        if fraction:
            self._substitute = self._find_substitute(documents)

    def _find_substitute(self, documents: Iterable[str]) -> int:
        """Return the index of the document to hold out if none is drawn, or -1."""
        number = -1
        substitute = -1
        lowest_draw = 1.0
        for number, _ in enumerate(documents):
            draw = self._draw(number, 1)[0]
            if draw < self.fraction:
                return -1
            if draw < lowest_draw:
                substitute = number
                lowest_draw = draw
        if number == 0:
            raise UsageError(
                "one document cannot be split into training and validation",
                "separate documents by blank lines, or take each line as one by "
                "document_separator=line of data.reader, or give other files to evaluate on",
            )
        return substitute

    def is_held_out(self, first: int, count: int) -> NDArray[np.bool_]:
        """Return the mask of held-out documents among ``count`` ones from index ``first``, bool."""
        mask = self._draw(first, count) < self.fraction
        if first <= self._substitute < first + count:
            mask[self._substitute - first] = True
        return mask

    def _draw(self, first: int, count: int) -> NDArray[np.float64]:
        # Each block has a generator of its own, so that any range can be drawn.
        parts = []
        while count > 0:
            block, start = divmod(first, BLOCK)
            if block != self._block:
                self._draws = generator(self.seed, "held out", block).random(BLOCK)
                self._block = block
            parts.append(self._draws[start : start + count])
            first = first + len(parts[-1])
            count = count - len(parts[-1])
        return np.concatenate(parts)


SHARD_BYTES = 256 << 20  # bytes


class _File:
    """A file that is hashed while it is written."""

    def __init__(self, path: Path) -> None:
        self.file = path.open("wb")
        self.hash = blake3()
        self.bytes = 0

    def write(self, array: NDArray[Any]) -> None:
        data = np.ascontiguousarray(array).data.cast("B")
        self.file.write(data)
        self.hash.update(data)
        self.bytes += len(data)

    def close(self) -> FileDigest:
        self.file.close()
        return FileDigest(bytes=self.bytes, blake3=self.hash.hexdigest())


class SplitWriter:
    """Writes the shards and offsets of a split."""

    def __init__(self, root: Path, name: str, dtype: str, shard_bytes: int = SHARD_BYTES) -> None:
        self.root = root
        self.name = name
        self.shard_bytes = shard_bytes
        self.dtype = np.dtype(dtype).newbyteorder("<")
        self.documents = 0
        self.sentences = 0
        self.tokens = 0
        self._files: dict[str, _File] = {}
        (root / name).mkdir()
        self._sentences = self._open("sentences.bin")
        self._documents = self._open("documents.bin")
        for file in (self._sentences, self._documents):
            file.write(np.zeros(1, "<i8"))
        self._shards: list[_File] = []

    def _open(self, name: str) -> _File:
        path = f"{self.name}/{name}"
        self._files[path] = _File(self.root / path)
        return self._files[path]

    def add(self, encoded: EncodedDocuments) -> None:
        """Append documents; those without tokens are skipped."""
        documents = encoded.documents[encoded.documents > 0]
        sentences = np.cumsum(encoded.sentences)
        ends = sentences[np.cumsum(documents) - 1]  # end of each document in tokens
        tokens = encoded.tokens.astype(self.dtype, copy=False)
        position = 0
        while position < len(tokens):
            if not self._shards:
                self._add_shard()
            shard = self._shards[-1]
            limit = position + (self.shard_bytes - shard.bytes) // self.dtype.itemsize
            fitting_documents = int(np.searchsorted(ends, limit, side="right"))
            end = int(ends[fitting_documents - 1]) if fitting_documents else position
            if end <= position and shard.bytes:
                shard.file.close()
                self._add_shard()
                continue
            if end <= position:  # The document is longer than a shard.
                end = int(ends[np.searchsorted(ends, position, side="right")])
            shard.write(tokens[position:end])
            position = end
        self._sentences.write((sentences + self.tokens).astype("<i8"))
        self._documents.write((np.cumsum(documents) + self.sentences).astype("<i8"))
        self.documents += len(documents)
        self.sentences += len(encoded.sentences)
        self.tokens += len(encoded.tokens)

    def _add_shard(self) -> None:
        self._shards.append(self._open(f"tokens-{len(self._shards):05}.bin"))

    def close(self) -> SplitRecord:
        """Close the files, and return their record."""
        files = {path: file.close() for path, file in sorted(self._files.items())}
        return SplitRecord(
            documents=self.documents, sentences=self.sentences, tokens=self.tokens, files=files
        )

    def abandon(self) -> None:
        """Close the files after an error."""
        for file in self._files.values():
            file.file.close()


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

    def add_digests(self, digests: Mapping[str, str]) -> dict[str, FileDigest]:
        """Return the digests of all files, of which some are known from reading them.

        Args:
            digests: path of a file -> its BLAKE3.
        """
        if "sources" not in self.__dict__:
            sources = {}
            for file in self.all_files:
                digest = digests.get(str(file)) or compute_blake3(file)
                sources[str(file)] = FileDigest(bytes=self.file_stats[str(file)][2], blake3=digest)
            self.__dict__["sources"] = sources
        return self.sources

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
        # The stats are read before the files, to detect a change.
        stats = spec.file_stats
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
            if sum(stamp[2] for stamp in stats.values()) <= SINGLE_PROCESS_BYTES:
                workers = 1
        sample = NormalizationSample()
        with hash_reads(stats.keys()) as digests:
            splits = _write_splits(spec, encoder, validation_split, writers, workers, sample)
        sources = spec.add_digests(digests.blake3)
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
            cleaning=_cleaning_records(spec.paths),
            normalization=sample.record(tokenizer.json),
            digest=NO_DIGEST,
        )
        (staging / CORPUS_MANIFEST).write_bytes(add_digest(encode_json(record)))
    return Corpus(target)


def _cleaning_records(paths: Iterable[str | Path]) -> dict[str, Any]:
    """Return what was dropped from directories of cleaned texts, by their names."""
    records = {}
    for path in paths:
        record_path = Path(path) / CLEANING_RECORD
        if record_path.is_file():
            content = read_regular(record_path, "record", MAX_JSON_BYTES)
            record = parse_json(content, record_path)
            if isinstance(record, dict) and isinstance(record.get("digest"), str):
                check_digest(record_path, content, record["digest"], hint="clean again")
                records[readable_name(str(path))] = record
    return records


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
    sample: NormalizationSample,
) -> dict[str, SplitRecord]:
    """Write the tokens of all splits, and return their records."""
    try:
        with progress_of_files("tokenizing", spec.all_files):
            for name, files in spec.files.items():
                number = 0
                documents = sample.watch(read_documents(files, spec.reader))
                for encoded in encode_all(encoder, documents, workers):
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


def training_texts(spec: CorpusSpec) -> Iterator[list[str]]:
    """Yield the texts of a corpus that are trained on, without those that are held out."""
    return _training_texts(spec, _validation_split(spec))


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
