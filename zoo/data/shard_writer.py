"""Writer of a split of a corpus, which streams documents to disk."""

from pathlib import Path
from typing import Any

import numpy as np
from blake3 import blake3
from numpy.typing import NDArray

from zoo.data.corpus import SplitRecord
from zoo.data.encoding import EncodedDocuments
from zoo.io.digests.files import FileDigest

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
