"""A corpus on disk: token ids in memory-mapped shards, and the offsets of documents and sentences.

A directory holds ``corpus.json``, ``tokenizer.json`` and a folder for each split::

    train/tokens-00000.bin ...   little-endian uint16, or uint32 for large vocabularies
    train/sentences.bin          int64: start of each sentence in tokens, and the end of the last
    train/documents.bin          int64: first sentence of each document, and the number of sentences

Token offsets count through all shards of a split; a document lies in one shard. No special tokens
are stored: the objective adds them.
"""

import os
import shlex
from collections.abc import Sequence
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any, Literal

import msgspec
import numpy as np
from blake3 import blake3
from numpy.typing import NDArray

from zoo.checkpoint import TOKENIZER
from zoo.data.normalization import NormalizationRecord
from zoo.data.offsets import OffsetReader, Offsets, map_apart
from zoo.data.order import DEFAULT_ORDER, DataOrder
from zoo.data.readers.documents import CORPUS_MANIFEST, ReaderConfig
from zoo.errors import SourceError, UsageError, VerificationError
from zoo.io.digests.files import FileDigest
from zoo.io.digests.self_digest import check_digest
from zoo.io.files import read_regular
from zoo.io.json import JsonStruct, parse_json_record
from zoo.io.limits import (
    MAX_CORPUS_MANIFEST_BYTES,
    MAX_CORPUS_MANIFEST_VALUES,
    MAX_CORPUS_TOKENIZER_BYTES,
)
from zoo.io.paths import safe_join
from zoo.tokenizers.info import TokenizerInfo

FORMAT_VERSION = 1
TRAIN = "train"
VALIDATION = "validation"
REBUILD = "remove this corpus and build it again"
DEFAULT_EVAL_FRACTION = 0.01
READER_DEFAULTS = msgspec.to_builtins(ReaderConfig())
OPTIONS = {"text_field": "--text"}  # Settings whose option of `zoo corpus build` has another name.
GIVEN = "given"  # The value in place of the fraction, if the held-out texts are other files.
Tokens = NDArray[np.integer[Any]]


def is_corpus(path: Path) -> bool:
    """Return whether a directory is a corpus."""
    return (path / CORPUS_MANIFEST).is_file()


class SplitRecord(JsonStruct):
    """Counts and files of a split."""

    documents: int
    sentences: int
    tokens: int
    files: dict[str, FileDigest]  # digests of the split's files, by path in the corpus

    def shards(self, name: str) -> list[str]:
        """Return the token files in order; ``name`` is the split's."""
        names = (f"{name}/tokens-{number:05}.bin" for number in range(len(self.files)))
        return [file for file in names if file in self.files]

    def offsets_key(self, name: str) -> str:
        """Return a digest of the offsets of sentences and documents; ``name`` is the split's."""
        files = [self.files[f"{name}/{kind}.bin"] for kind in ("sentences", "documents")]
        return blake3("".join(file.blake3 for file in files).encode()).hexdigest(16)


class CorpusRecord(JsonStruct):
    """``corpus.json``."""

    zoo: int  # version of the format
    created_by: str  # version of the package that wrote the corpus
    dtype: Literal["uint16", "uint32"]  # dtype of the token shards
    vocab_size: int  # highest id of the tokenizer plus 1
    tokenizer: TokenizerInfo  # special tokens and properties that are not in ``tokenizer.json``
    tokenizer_digest: str  # BLAKE3 of ``tokenizer.json``
    sources: dict[str, FileDigest]  # digests of the files that were read, in order
    settings: dict[str, Any]  # settings of reader, tokenizer and split
    splits: dict[str, SplitRecord]  # counts and files of each split
    # Directory of cleaned texts -> its ``cleaning.json``: what was dropped before they were read.
    cleaning: dict[str, Any] = msgspec.field(default_factory=dict)
    # Characters that the tokenizer changes; ``None`` in corpora that earlier versions wrote.
    normalization: NormalizationRecord | None = None
    # BLAKE3 of this file (``zoo.io.digests.self_digest``); empty in corpora that earlier versions
    # wrote
    digest: str = ""


class Split:
    """The documents of a split as token ids.

    Args:
        shards: token ids in order; a document lies in one shard.
        sentences: start of each sentence in tokens, and the end, (sentences + 1,), int64.
        documents: start of each document in sentences, and the end, (documents + 1,), int64.
        order: kind of the order in which a run reads the documents.
        key: digest of the offsets; empty for a split in memory.
    """

    def __init__(
        self,
        shards: Sequence[Tokens],
        sentences: Offsets,
        documents: Offsets,
        *,
        order: DataOrder = DEFAULT_ORDER,
        key: str = "",
    ) -> None:
        self.shards = list(shards)
        self.sentences = sentences
        self.documents = documents
        self.order: DataOrder = order
        self.key = key
        self.sentence_starts = OffsetReader(sentences)
        self._first_sentences = OffsetReader(documents)
        self._ends = np.cumsum([len(shard) for shard in self.shards])

    @classmethod
    def from_documents(cls, documents: Sequence[Sequence[Sequence[int]]]) -> "Split":
        """Return a split in memory from documents, each a list of sentences of token ids."""
        sentences = list(chain.from_iterable(documents))
        tokens = np.array(list(chain.from_iterable(sentences)), dtype=np.uint32)
        return cls([tokens], _offsets(map(len, sentences)), _offsets(map(len, documents)))

    @property
    def tokens(self) -> int:
        """Number of tokens."""
        return int(self._ends[-1]) if self.shards else 0

    @property
    def num_documents(self) -> int:
        """Number of documents."""
        return len(self.documents) - 1

    def sentence_span(self, document: int) -> tuple[int, int]:
        """Return the first sentence of a document, and the one after its last."""
        return self._first_sentences.pair(document)

    def document_span(self, number: int) -> tuple[int, int]:
        """Return the start of a document in tokens, and its end."""
        first, last = self.sentence_span(number)
        return self.sentence_starts[first], self.sentence_starts[last]

    def sentence_spans(self, first: int, last: int) -> Offsets:
        """Return the spans of successive documents in sentences, (last - first, 2), int64."""
        documents = map_apart(self.documents, first, last + 1)
        return np.stack([documents[:-1], documents[1:]], axis=1)

    def document_spans(self, first: int, last: int) -> Offsets:
        """Return start and end of successive documents in tokens, (last - first, 2), int64."""
        documents = map_apart(self.documents, first, last + 1)
        first_sentence = int(documents[0])
        sentences = map_apart(self.sentences, first_sentence, int(documents[-1]) + 1)
        starts = sentences[documents - first_sentence]
        return np.stack([starts[:-1], starts[1:]], axis=1)

    def document_starts(self) -> Offsets:
        """Return the start of each document in tokens, and the end, (documents + 1,), int64."""
        starts: Offsets = np.asarray(self.sentences)[self.documents]
        return starts

    def read(self, start: int, end: int) -> NDArray[np.int64]:
        """Return the token ids between two offsets of one document, int64.

        Args:
            start: offset of the first token in the split.
            end: offset after the last token, in the same document.
        """
        shard = int(np.searchsorted(self._ends, start, side="right"))
        shard_start = int(self._ends[shard]) - len(self.shards[shard])
        return self.shards[shard][start - shard_start : end - shard_start].astype(np.int64)


def _offsets(lengths: Any) -> Offsets:
    return np.cumsum([0, *lengths], dtype=np.int64)


class Corpus:
    """A corpus on disk, opened for reading."""

    # The manifest is checked when the corpus is opened, and the lengths of files when a split is
    # opened. Digests and contents are checked by ``zoo.data.verify``.

    def __init__(self, path: Path) -> None:
        self.path = path
        if not is_corpus(path):
            raise SourceError(f"{path} is not a corpus", "`zoo corpus build` makes one")
        content = read_regular(path / CORPUS_MANIFEST, "manifest", MAX_CORPUS_MANIFEST_BYTES)
        self.record = parse_json_record(
            content, path / CORPUS_MANIFEST, CorpusRecord, max_values=MAX_CORPUS_MANIFEST_VALUES
        )
        if self.record.zoo > FORMAT_VERSION:
            raise VerificationError(
                f"{path} is of layout {self.record.zoo}", "install a newer plm-zoo"
            )
        if self.record.digest:
            check_digest(path / CORPUS_MANIFEST, content, self.record.digest, hint=REBUILD)
        for name, split in self.record.splits.items():
            if not self._has_consistent_sizes(name, split):
                raise VerificationError(
                    f"{path / CORPUS_MANIFEST}: the files of split {name!r} do not go with its "
                    "counts",
                    REBUILD,
                )

    def _has_consistent_sizes(self, name: str, split: SplitRecord) -> bool:
        """Return whether the files of a split have the sizes that follow from its counts."""
        sizes = {file: digest.bytes for file, digest in split.files.items()}
        expected_sizes = {
            f"{name}/sentences.bin": 8 * (split.sentences + 1),
            f"{name}/documents.bin": 8 * (split.documents + 1),
        }
        shard_sizes = {shard: sizes[shard] for shard in split.shards(name)}
        if sizes != {**expected_sizes, **shard_sizes} or min(sizes.values()) < 0:
            return False
        token_size = np.dtype(self.record.dtype).itemsize
        return sum(shard_sizes.values()) == token_size * split.tokens

    def split(self, name: str, *, order: DataOrder = DEFAULT_ORDER) -> Split:
        """Open a split: ``train`` or ``validation``.

        Args:
            name: name of the split.
            order: kind of the order in which a run reads the documents.
        """
        if name not in self.record.splits:
            raise UsageError(
                f"{self.path} has no split {name!r}", f"it has {', '.join(self.record.splits)}"
            )
        record = self.record.splits[name]
        shards = [self._map(file, record, self.record.dtype) for file in record.shards(name)]
        return Split(
            shards,
            self._map(f"{name}/sentences.bin", record, "int64"),
            self._map(f"{name}/documents.bin", record, "int64"),
            order=order,
            key=record.offsets_key(name),
        )

    @cached_property
    def tokenizer_json(self) -> bytes:
        """``tokenizer.json``; ``record.tokenizer`` has the special tokens."""
        path = self.path / TOKENIZER
        content = read_regular(path, "tokenizer", MAX_CORPUS_TOKENIZER_BYTES)
        if blake3(content).hexdigest() != self.record.tokenizer_digest:
            raise VerificationError(f"{path} is not the file that {CORPUS_MANIFEST} lists", REBUILD)
        return content

    def vocabulary(self) -> dict[str, int]:
        """Return token -> id of the tokenizer; see ``tokenizer_json``."""
        from zoo.tokenizers.tokenizer_json import parse

        ids: dict[str, int] = parse(self.tokenizer_json, self.path / TOKENIZER).get_vocab()
        return ids

    def build_command(self, tokenizer: str, output: str) -> str:
        """Return the command that builds a corpus of the same texts with another tokenizer."""
        settings = self.record.settings
        defaults = {**READER_DEFAULTS, "seed": 0}
        options = ["-o", output, "--tokenizer", tokenizer]
        for name, default in defaults.items():
            value = settings.get(name, default)
            if value != default:
                options += [OPTIONS.get(name, f"--{name.replace('_', '-')}"), str(value)]
        paths = list(self.record.sources)
        validation = settings.get("validation", DEFAULT_EVAL_FRACTION)
        if validation == GIVEN:  # The sources do not say which of them are held out.
            options += ["--eval", "PATH"]
            paths = []
        elif validation != DEFAULT_EVAL_FRACTION:
            options += ["--eval-fraction", str(validation)]
        sources = "PATH..."
        if paths and all(map(os.path.exists, paths)):
            sources = shlex.join(paths)
        return f"zoo corpus build {sources} {shlex.join(options)}"

    def _map(self, file: str, record: SplitRecord, dtype_name: str) -> NDArray[Any]:
        """Map the numbers of a file of a split into memory."""
        path = safe_join(self.path, file, CORPUS_MANIFEST)
        dtype = np.dtype(dtype_name).newbyteorder("<")
        if not path.is_file() or path.stat().st_size != record.files[file].bytes:
            raise VerificationError(
                f"{path} is missing or not as long as {CORPUS_MANIFEST} says", REBUILD
            )
        if not path.stat().st_size:
            return np.zeros(0, dtype)  # An empty file cannot be mapped.
        return np.memmap(path, dtype, "r")
