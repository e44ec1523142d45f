"""The stream of a corpus, and the segments of rows of pretraining.

As ``create_tfrecords`` and ``_split_a_and_b`` of the released data_utils.py: all documents are one
stream of tokens, with ``<eod>`` after each. A row is a stretch of it, whose hidden states become
the memory of the next row, and two segments after that. In half of the rows the second segment
follows the first, in the others it is a random one; both are cut at the end. The next row begins
where these segments began, so that each token is read twice, once as a part of a segment.
"""

from bisect import bisect_right
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from zoo.data.corpus import Split
from zoo.data.document_stream import Documents, DocumentStream

Ids = NDArray[np.int64]
Range = tuple[int, int]


class TokenStream(Protocol):
    """A stream of tokens."""

    def __len__(self) -> int:
        """Return the number of tokens."""

    def read(self, start: int, end: int) -> Ids:
        """Return the tokens of a stretch, (end - start,), int64."""

    def boundaries_around(self, start: int, end: int) -> Ids:
        """Return starts and ends of the sentences of a stretch, (n,), int64, in order.

        The first one is at ``start`` or before it, and the last one at ``end`` or after it.
        """


class MarkedDocuments(Documents):
    """The documents of a split, with a token after each.

    Args:
        split: the documents.
        end_of_document: id of the token, which counts as a sentence.
    """

    # The address of a token is its offset in the split, plus the number of documents before it.

    def __init__(self, split: Split, end_of_document: int) -> None:
        self.split = split
        self.end_of_document = end_of_document
        self.order = split.order
        self.key = f"{split.key} marked" if split.key else ""

    @property
    def num_documents(self) -> int:
        """See ``Documents``."""
        return self.split.num_documents

    def document_span(self, number: int) -> Range:
        """See ``Documents``."""
        start, end = self.split.document_span(number)
        return start + number, end + number + 1

    def document_spans(self, first: int, last: int) -> Ids:
        """See ``Documents``."""
        numbers = np.arange(first, last)
        spans = self.split.document_spans(first, last) + numbers[:, None]
        spans[:, 1] += 1
        return spans

    def document_at(self, address: int) -> int:
        """Return the document of a token."""
        documents = range(self.num_documents)
        return bisect_right(documents, address, key=lambda k: self.document_span(k)[0]) - 1

    def read(self, start: int, end: int) -> Ids:
        """Return the tokens between two addresses of one document, (end - start,), int64."""
        document = self.document_at(start)
        _, text_end = self.split.document_span(document)
        first = start - document
        last = end - document
        pieces = []
        if first < text_end:
            pieces.append(self.split.read(first, min(last, text_end)))
        if last > text_end:
            pieces.append(np.array([self.end_of_document]))
        return np.concatenate(pieces)

    def boundaries_around(self, start: int, end: int) -> list[int]:
        """Return starts and ends of the sentences of a part of one document, as addresses."""
        document = self.document_at(start)
        first_sentence, last_sentence = self.split.sentence_span(document)
        _, document_end = self.document_span(document)

        def boundary(sentence: int) -> int:
            # The token after the document is the sentence ``last_sentence``.
            if sentence > last_sentence:
                return document_end
            return self.split.sentence_starts[sentence] + document

        sentences = range(first_sentence, last_sentence + 1)
        sentence = first_sentence + bisect_right(sentences, start, key=boundary) - 1
        boundaries = [boundary(sentence)]
        while boundaries[-1] < end:
            sentence += 1
            boundaries.append(boundary(sentence))
        return boundaries


class MarkedStream:
    """The documents of a split in random order, with a token after each.

    Args:
        split: the documents.
        end_of_document: id of the token, which counts as a sentence.
        seed: seed of the order.
    """

    def __init__(self, split: Split, end_of_document: int, seed: int) -> None:
        self.documents = MarkedDocuments(split, end_of_document)
        self.stream = DocumentStream(self.documents, seed)

    def __len__(self) -> int:
        """See ``TokenStream``."""
        return len(self.stream)

    def read(self, start: int, end: int) -> Ids:
        """See ``TokenStream``."""
        pieces = [self.documents.read(*span) for span in self.stream.spans(start, end)]
        return np.concatenate(pieces)

    def boundaries_around(self, start: int, end: int) -> Ids:
        """See ``TokenStream``."""
        boundaries: list[int] = []
        for place, first, last in self.stream.pieces(start, end):
            del boundaries[-1:]  # The end of a document is the start of the next one.
            for address in self.documents.boundaries_around(first, last):
                boundaries.append(place + address - first)
        return np.array(boundaries, dtype=np.int64)


class ReversedStream:
    """A stream from its end to its start.

    Args:
        stream: the stream.
    """

    def __init__(self, stream: TokenStream) -> None:
        self.stream = stream

    def __len__(self) -> int:
        """See ``TokenStream``."""
        return len(self.stream)

    def read(self, start: int, end: int) -> Ids:
        """See ``TokenStream``."""
        return self.stream.read(len(self) - end, len(self) - start)[::-1]

    def boundaries_around(self, start: int, end: int) -> Ids:
        """See ``TokenStream``."""
        boundaries = self.stream.boundaries_around(len(self) - end, len(self) - start)
        return len(self) - boundaries[::-1]


@dataclass(frozen=True)
class Segments:
    """The two segments of a row, as stretches of a stream.

    Attributes:
        first: start and end of the first.
        second: start and end of the second.
    """

    first: Range
    second: Range


def draw_segments(stream: TokenStream, start: int, room: int, rng: np.random.Generator) -> Segments:
    """Draw two segments.

    Args:
        stream: the stream, with more than ``start + room`` tokens.
        start: start of the first segment.
        room: number of tokens of both, at least 2.
        rng: random generator.
    """
    boundaries = stream.boundaries_around(start, start + room)
    cuts = boundaries[(boundaries > start) & (boundaries < start + room)]
    end = int(boundaries[-1])
    follows = bool(len(cuts)) and rng.random() >= 0.5
    first_end = int(rng.choice(cuts)) if len(cuts) else end
    if follows:
        second = first_end, end
    else:
        size = max(1, room - (first_end - start))
        place = int(rng.integers(len(stream) - size))
        second_boundaries = stream.boundaries_around(place, place + size)
        second_end = min(int(second_boundaries[-1]), len(stream) - 1)
        second = int(second_boundaries[0]), second_end
    sizes = cut_to(first_end - start, second[1] - second[0], room)
    return Segments((start, start + sizes[0]), (second[0], second[0] + sizes[1]))


def cut_to(first: int, second: int, room: int) -> tuple[int, int]:
    """Return the sizes of two segments that are cut until both fit, the longer one first.

    Args:
        first: number of tokens of the first, at least 1.
        second: number of tokens of the second, which loses one if both are equal.
        room: number of tokens of both, at most their sum.
    """
    excess = first + second - room
    longer = min(excess, abs(first - second))
    both = excess - longer
    first -= (longer if first > second else 0) + both // 2
    return first, room - first
