"""The stream of a corpus, and the segments of rows of pretraining.

As ``create_tfrecords`` and ``_split_a_and_b`` of the released data_utils.py: all documents are one
stream of tokens, with ``<eod>`` after each. A row is a stretch of it, whose hidden states become
the memory of the next row, and two segments after that. In half of the rows the second segment
follows the first, in the others it is a random one; both are cut at the end. The next row begins
where these segments began, so that each token is read twice, once as a part of a segment.
"""

from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from zoo.data.corpus import Split
from zoo.data.rng import generator

Ids = NDArray[np.int64]
Range = tuple[int, int]


class Stream(Protocol):
    """A stream of tokens.

    Attributes:
        boundaries: start of each sentence, and the end, (sentences + 1,), int64.
    """

    boundaries: Ids

    def read(self, start: int, end: int) -> Ids:
        """Return the tokens of a stretch, (end - start,), int64."""


class DocumentStream:
    """The documents of a split in random order, with a token after each.

    Args:
        split: the documents.
        end_of_document: id of the token, which counts as a sentence.
        seed: seed of the order.
    """

    def __init__(self, split: Split, end_of_document: int, seed: int) -> None:
        self.split = split
        self.end_of_document = end_of_document
        sentences = np.asarray(split.sentences)
        documents = np.asarray(split.documents)
        counts = np.diff(documents)
        order = generator(seed, "documents").permutation(len(counts))
        units = counts[order] + 1  # the last one of each document is the token
        ends = np.cumsum(units) - 1
        first = np.repeat(documents[:-1][order] - (ends + 1 - units), units)
        self.sentences = np.arange(units.sum()) + first
        self.sentences[ends] = -1
        sizes = np.where(self.sentences < 0, 1, np.diff(sentences)[self.sentences])
        self.boundaries: Ids = np.cumsum([0, *sizes], dtype=np.int64)

    def read(self, start: int, end: int) -> Ids:
        """See ``Stream``."""
        at = bisect_right(self.boundaries, start) - 1
        pieces = []
        while (begin := int(self.boundaries[at])) < end:
            pieces.append(self._sentence(int(self.sentences[at]))[max(start - begin, 0) :])
            at += 1
        return np.concatenate(pieces)[: end - start]

    def _sentence(self, number: int) -> Ids:
        if number < 0:
            return np.array([self.end_of_document])
        start, end = self.split.sentences[number : number + 2]
        return self.split.read(int(start), int(end))


class ReversedStream:
    """A stream from its end to its start.

    Args:
        stream: the stream.
    """

    def __init__(self, stream: Stream) -> None:
        self.stream = stream
        self.length = int(stream.boundaries[-1])
        self.boundaries: Ids = self.length - stream.boundaries[::-1]

    def read(self, start: int, end: int) -> Ids:
        """See ``Stream``."""
        return self.stream.read(self.length - end, self.length - start)[::-1]


@dataclass(frozen=True)
class Segments:
    """The two segments of a row, as stretches of a stream.

    Attributes:
        first: start and end of the first.
        second: start and end of the second.
    """

    first: Range
    second: Range


def draw_segments(stream: Stream, start: int, room: int, rng: np.random.Generator) -> Segments:
    """Draw two segments.

    Args:
        stream: the stream, with more than ``start + room`` tokens.
        start: start of the first segment.
        room: number of tokens of both, at least 2.
        rng: random generator.
    """
    boundaries = stream.boundaries
    length = int(stream.boundaries[-1])
    begin = bisect_right(boundaries, start)
    last = bisect_left(boundaries, start + room)
    cuts = boundaries[begin:last]
    end = int(boundaries[last])
    follows = bool(len(cuts)) and rng.random() >= 0.5
    first_end = int(rng.choice(cuts)) if len(cuts) else end
    if follows:
        second = first_end, end
    else:
        size = max(1, room - (first_end - start))
        at = int(rng.integers(length - size))
        sentence = bisect_right(boundaries, at) - 1
        after = bisect_left(boundaries, at + size)
        second = int(boundaries[sentence]), min(int(boundaries[after]), length - 1)
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
