"""A corpus on disk: token numbers in memory-mapped shards, with documents and sentences marked.

A directory holds ``corpus.json``, ``tokenizer.json`` and a folder for each split::

    train/tokens-00000.bin ...   little-endian uint16, or uint32 for large vocabularies
    train/sentences.bin          int64: where each sentence starts, and where the last one ends
    train/documents.bin          int64: the first sentence of each document, and how many there are

Token offsets count through all shards of a split; a document lies in one shard. No special
tokens are stored: what surrounds a text is up to the objective.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from blake3 import blake3
from numpy.typing import NDArray

from zoo.checkpoint import TOKENIZER, FileDigest, Record, TokenizerInfo, decode
from zoo.errors import SourceError, UsageError, VerificationError

MANIFEST, LAYOUT = "corpus.json", 1
TRAIN, VALIDATION = "train", "validation"
Tokens = NDArray[np.integer[Any]]
Offsets = NDArray[np.int64]


class SplitRecord(Record):
    """What a split holds.

    Attributes:
        documents: how many.
        sentences: how many.
        tokens: how many.
        files: every file of the split, by its path in the corpus.
    """

    documents: int
    sentences: int
    tokens: int
    files: dict[str, FileDigest]


class CorpusRecord(Record):
    """``corpus.json``.

    Attributes:
        zoo: version of this layout.
        created_by: version of the distribution that wrote it.
        dtype: of the token shards.
        vocab_size: how many ids the tokenizer knows.
        tokenizer: what ``tokenizer.json`` does not say.
        tokenizer_digest: BLAKE3 of ``tokenizer.json``.
        sources: the files that were read, in order.
        settings: how they were read and split.
        splits: name -> what it holds.
    """

    zoo: int
    created_by: str
    dtype: str
    vocab_size: int
    tokenizer: TokenizerInfo
    tokenizer_digest: str
    sources: dict[str, FileDigest]
    settings: dict[str, Any]
    splits: dict[str, SplitRecord]


class Split:
    """Documents as token numbers.

    Args:
        shards: the tokens, in order; a document lies in one shard.
        sentences: (sentences + 1,), where each starts, counted in tokens.
        documents: (documents + 1,), where each starts, counted in sentences.
    """

    def __init__(self, shards: Sequence[Tokens], sentences: Offsets, documents: Offsets) -> None:
        self.shards, self.sentences, self.documents = list(shards), sentences, documents
        self._ends = np.cumsum([len(shard) for shard in self.shards])

    @classmethod
    def of(cls, documents: Sequence[Sequence[Sequence[int]]]) -> "Split":
        """Hold documents, each a list of sentences, in memory."""
        sentences = [sentence for document in documents for sentence in document]
        tokens = np.array([token for sentence in sentences for token in sentence], dtype=np.uint32)
        return cls([tokens], _offsets(map(len, sentences)), _offsets(map(len, documents)))

    @property
    def tokens(self) -> int:
        """How many tokens there are."""
        return int(self._ends[-1]) if self.shards else 0

    def document_starts(self) -> Offsets:
        """Return where each document starts, and where the last one ends, in tokens."""
        starts: Offsets = np.asarray(self.sentences)[self.documents]
        return starts

    def read(self, start: int, end: int) -> NDArray[np.int64]:
        """Return the tokens between two offsets of one document."""
        shard = int(np.searchsorted(self._ends, start, side="right"))
        before = int(self._ends[shard]) - len(self.shards[shard])
        return self.shards[shard][start - before : end - before].astype(np.int64)


def _offsets(lengths: Any) -> Offsets:
    return np.cumsum([0, *lengths], dtype=np.int64)


class Corpus:
    """A corpus on disk, opened for reading.

    Args:
        path: its directory.

    Raises:
        SourceError: there is no corpus.
        VerificationError: a file is missing, or not as long as the manifest says.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        if not (path / MANIFEST).is_file():
            raise SourceError(f"{path} is not a corpus", "`zoo corpus build` makes one")
        self.record = decode(path / MANIFEST, CorpusRecord)
        if self.record.zoo > LAYOUT:
            raise VerificationError(
                f"{path} is of layout {self.record.zoo}", "install a newer plm-zoo"
            )

    def split(self, name: str) -> Split:
        """Open a split: ``train`` or ``validation``.

        Raises:
            UsageError: there is no such split.
            VerificationError: see above.
        """
        if name not in self.record.splits:
            raise UsageError(
                f"{self.path} has no split {name!r}", f"it has {', '.join(self.record.splits)}"
            )
        record = self.record.splits[name]
        shards = sorted(file for file in record.files if Path(file).name.startswith("tokens-"))
        return Split(
            [self._map(file, record, self.record.dtype) for file in shards],
            self._map(f"{name}/sentences.bin", record, "int64"),
            self._map(f"{name}/documents.bin", record, "int64"),
        )

    def tokenizer_json(self) -> bytes:
        """Return the contents of ``tokenizer.json``; ``record.tokenizer`` says what it does not.

        Raises:
            SourceError: it cannot be read.
            VerificationError: it is not the one that the corpus was built with.
        """
        path = self.path / TOKENIZER
        try:
            found = path.read_bytes()
        except OSError as error:
            raise SourceError(f"{path}: {error.strerror}") from error
        if blake3(found).hexdigest() != self.record.tokenizer_digest:
            raise VerificationError(
                f"{path} is not the file that {MANIFEST} lists", "build the corpus again"
            )
        return found

    def _map(self, file: str, record: SplitRecord, dtype: str) -> NDArray[Any]:
        from zoo.paths import inside

        path = inside(self.path, file, MANIFEST)
        kind = np.dtype(dtype).newbyteorder("<")
        if not path.is_file() or path.stat().st_size != record.files[file].bytes:
            raise VerificationError(
                f"{path} is missing or not as long as {MANIFEST} says", "build the corpus again"
            )
        if not path.stat().st_size:
            return np.zeros(0, kind)
        return np.memmap(path, kind, "r")
