"""The documents of a split in random order, one after another: the plan of a run's rows.

A row of a run is a stretch of this stream, or a part of one. Where a stretch is in the corpus
follows from two things: the place of each document in the order, which a keyed permutation
computes, and the sum of the sizes of the documents before it. These sums are the whole plan: 8
bytes a document, 16 MB for 10^9 tokens and 160 MB for 10^10 in documents of 500 tokens. Rows,
segments and positions follow from them and are stored nowhere.

* **Where.** ``$ZOO_HOME/rows/KEY/ends.npy``, next to a manifest with its digest. The key is a
  digest of the corpus's offsets (from its manifest), the seed, the kind of the order, and the units
  and gaps that an objective counts. Runs of the same corpus and seed share it. Small splits, and
  splits in memory, have their sums in memory.
* **Who.** The first process of a host that needs it writes it, under a lock, to a temporary
  directory that is then renamed (``zoo.io.cached_files``). The others wait, and read of it what
  they need. A damaged file is written again. Where the cache cannot be written, each process has
  its own sums.
* **Cost.** The writer reads the offsets in blocks, and needs 4 bytes of memory for each document.
  To find a row, a process searches the sums and looks up the documents of the row, whatever the
  size of the corpus. ``python -m benchmarks.row_plan`` measures both.
"""

from collections.abc import Iterator
from typing import Protocol

import numpy as np
from blake3 import blake3
from numpy.typing import NDArray

from zoo.data.cached_arrays import cached_array
from zoo.data.offsets import OffsetReader, Offsets
from zoo.data.order import DataOrder, Permutation, permutation

VERSION = 1  # Version of the sums. Increase it when they change.
CACHED_DOCUMENTS = 100_000  # Sums of fewer documents take less time than their cache.
BLOCK_DOCUMENTS = 1 << 15  # Documents whose sums are computed at once.


class Documents(Protocol):
    """Documents to pack, such as a ``Split``.

    A document is a span of addresses, from its first unit to the one after its last. Units are
    tokens, or what an objective counts instead.
    """

    order: DataOrder  # Kind of the order in which they are read.
    key: str  # Digest of their offsets; empty for documents in memory.

    @property
    def num_documents(self) -> int:
        """Number of documents."""

    def document_span(self, number: int) -> tuple[int, int]:
        """Return start and end of a document."""

    def document_spans(self, first: int, last: int) -> Offsets:
        """Return start and end of successive documents, (last - first, 2), int64."""


class DocumentStream:
    """The documents of a split in random order, with a gap after each that is not empty.

    Args:
        documents: the documents.
        seed: seed of the order.
        gap: number of places of the stream after each document.
    """

    def __init__(self, documents: Documents, seed: int, gap: int = 0) -> None:
        self.documents = documents
        self.gap = gap
        self._permutation = document_order(documents, seed)
        # End of each document and of its gap in the stream, in the order of the stream.
        self._ends = OffsetReader(_cached_ends(documents, self._permutation, seed, gap))

    def __len__(self) -> int:
        if not len(self._ends):
            return 0
        return max(0, self._ends[len(self._ends) - 1] - self.gap)

    def document_blocks(self) -> Iterator[tuple[Offsets, Offsets]]:
        """Yield starts and ends, in the stream, of documents that are not empty, in blocks.

        Each block has two arrays, (documents,), int64; the gap after a document is not in it.
        """
        last_end = 0
        for first in range(0, len(self._ends), BLOCK_DOCUMENTS):
            ends = self._ends.part(first, min(first + BLOCK_DOCUMENTS, len(self._ends)))
            starts = np.concatenate([[last_end], ends[:-1]])
            last_end = int(ends[-1])
            has_text = ends > starts
            yield starts[has_text], ends[has_text] - self.gap

    def spans(self, start: int, end: int) -> list[tuple[int, int]]:
        """Return the parts of documents in a stretch of the stream, in order, as addresses."""
        return [(first, last) for _, first, last in self.pieces(start, end)]

    def pieces(self, start: int, end: int) -> list[tuple[int, int, int]]:
        """Return the same with the place of each part in the stream before its addresses."""
        pieces = []
        place = self._ends.count_up_to(start)
        while start < end:
            next_start = self._ends[place]
            first, last = self.documents.document_span(self._permutation[place])
            if first < last:
                # What to add to a place of the stream, to get the address.
                shift = last + self.gap - next_start
                stop = min(end, next_start - self.gap)
                if start < stop:
                    pieces.append((start, start + shift, stop + shift))
            start = next_start
            place = place + 1
        return pieces


def document_order(documents: Documents, seed: int) -> Permutation:
    """Return the order in which the documents of a split are read."""
    return permutation(documents.order, documents.num_documents, seed, "documents")


def plan_key(documents: Documents, seed: int, *settings: object) -> str:
    """Return the name in the cache of a plan for some documents; empty if it is not cached.

    Args:
        documents: the documents.
        seed: seed of their order.
        *settings: all else that the plan depends on.
    """
    if not documents.key or documents.num_documents <= CACHED_DOCUMENTS:
        return ""
    parts = [documents.key, documents.order, seed, *settings]
    if documents.order == "arrays":
        parts.append(np.__version__)  # Another version of NumPy may draw another permutation.
    return blake3(repr(parts).encode()).hexdigest(16)


def _cached_ends(documents: Documents, order: Permutation, seed: int, gap: int) -> Offsets:
    """Return the end of each document of a stream, mapped from the cache if there are many."""
    count = documents.num_documents

    def blocks() -> Iterator[Offsets]:
        yield from _ends_by_block(documents, order, gap)

    key = plan_key(documents, seed, "ends", VERSION, gap)
    return cached_array("rows", key, "ends", count, blocks)


def _ends_by_block(documents: Documents, order: Permutation, gap: int) -> Iterator[Offsets]:
    """Yield the ends of successive documents of a stream, in blocks."""
    sizes = _document_sizes(documents)
    end = 0
    for first in range(0, len(sizes), BLOCK_DOCUMENTS):
        places = np.arange(first, min(first + BLOCK_DOCUMENTS, len(sizes)))
        block = sizes[order.take(places)].astype(np.int64)
        block += gap * (block > 0)
        ends = end + np.cumsum(block)
        end = int(ends[-1])
        yield ends


def _document_sizes(documents: Documents) -> NDArray[np.unsignedinteger]:
    """Return the number of units of each document, (documents,)."""
    count = documents.num_documents
    sizes: NDArray[np.unsignedinteger] = np.empty(count, np.uint32)
    for first in range(0, count, BLOCK_DOCUMENTS):
        last = min(first + BLOCK_DOCUMENTS, count)
        spans = documents.document_spans(first, last)
        block = spans[:, 1] - spans[:, 0]
        if int(block.max()) > np.iinfo(sizes.dtype).max:
            sizes = sizes.astype(np.uint64)
        sizes[first:last] = block
    return sizes
