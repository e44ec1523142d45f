"""Pairs of texts from a corpus, and rows that hold several of them.

The pairs are those of ``create_pretraining_data.py``, released with Devlin et al. 2018
(arXiv:1810.04805, appendix A.2) and, for the order of sentences, with Lan et al. 2020
(arXiv:1909.11942). Sentences of a document are gathered until they fill a row, in one document of
ten until they reach a random shorter length. They are cut in two between sentences. In half of
all cases the second part goes back, and its place is taken by sentences of another document.
What is too long is cut off at either end, from the longer text first.

There, a row holds one pair and padding. Here, pairs that leave room share a row. And there, the
data were made ten times over, with other masks, cuts and random texts each time, which is left to
choice here (``dupe_factor``): masks are drawn anew each time a row is used.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from zoo.data.corpus import Offsets, Split

SHORT_FRACTION = 0.1  # the share of documents whose pairs are shorter
Pair = tuple[int, int, int, int, int]  # start and end of the first text, of the second, label
Draw = Callable[[], float]
PairGenerator = Callable[[Split, int, Draw], Iterator[Pair]]


@dataclass(frozen=True)
class SentencePairRows:
    """Pairs, row by row.

    Attributes:
        rows: (rows + 1,), the first pair of each row, and how many there are.
        spans: (pairs, 4), start and end of the first text, then of the second: offsets of tokens
            in the split.
        labels: (pairs,).
    """

    rows: Offsets
    spans: Offsets
    labels: NDArray[np.int64]

    def __len__(self) -> int:
        """Return how many rows there are."""
        return len(self.rows) - 1

    def row(self, index: int) -> list[tuple[list[int], int]]:
        """Return the pairs of a row: four offsets and a label each."""
        there = slice(self.rows[index], self.rows[index + 1])
        return list(zip(self.spans[there].tolist(), self.labels[there].tolist(), strict=True))


def make_pairs(
    split: Split,
    generate: PairGenerator,
    *,
    length: int,
    special_tokens: int,
    rng: np.random.Generator,
    dupe_factor: int,
) -> SentencePairRows:
    """Make pairs of a whole corpus, and lay them out in rows.

    Args:
        split: the corpus.
        maker: ``next_sentence_pairs`` or ``consecutive_pairs``.
        length: places in a row.
        around: how many of them special tokens take that stand around a pair.
        rng: for all that is drawn.
        copies: how often the corpus is gone through, with other draws each time.
    """
    room, draw = length - special_tokens, uniform(rng).__next__
    numbers = (
        number
        for _ in range(dupe_factor)
        for pair in generate(split, room, draw)
        for number in pair
    )
    made = np.fromiter(numbers, dtype=np.int64).reshape(-1, 5)
    spans = truncate_pairs(made[:, :4], room, rng)
    row_of = best_fit_decreasing(
        spans[:, 1] - spans[:, 0] + spans[:, 3] - spans[:, 2] + special_tokens, length
    )
    order = np.argsort(row_of, kind="stable")
    counts = np.bincount(row_of)
    return SentencePairRows(np.cumsum([0, *counts]), spans[order], made[order, 4])


def uniform(rng: np.random.Generator) -> Iterator[float]:
    """Yield numbers from 0 to below 1, a block at a time: single draws are slow."""
    while True:
        yield from rng.random(4096).tolist()


def next_sentence_pairs(split: Split, max_tokens: int, draw: Draw) -> Iterator[Pair]:
    """Yield pairs for the objective of the next sentence: label 0 if it is, 1 if it is random.

    A sentence that has none behind it always goes with random ones, as in the released code:
    where documents are short, more than half of the pairs are random.

    Args:
        split: at least two documents.
        max_tokens: tokens of a pair, at most; longer ones are yielded all the same.
        draw: returns a number from 0 to below 1.
    """
    for document, bounds in _documents(split):
        target, at, last = _target_length(max_tokens, draw), 0, len(bounds) - 1
        while at < last:
            end = min(bisect_left(bounds, bounds[at] + target, at + 1), last)
            cut = at + 1 + int(draw() * (end - at - 1))
            first = bounds[at], bounds[cut]
            if cut == end or draw() < 0.5:
                wanted = target - (first[1] - first[0])
                yield *first, *_random_sentences(split, document, wanted, draw), 1
                at = cut
            else:
                yield *first, bounds[cut], bounds[end], 0
                at = end


def consecutive_pairs(split: Split, max_tokens: int, draw: Draw) -> Iterator[Pair]:
    """Yield pairs that follow each other, for the objective of their order; all have label 0.

    Documents of one sentence are left out; a last sentence that is left over goes with the one
    before it. (The released code pairs such sentences with random ones, and calls them swapped.)

    Args:
        split: the corpus.
        max_tokens: tokens of a pair, at most; longer ones are yielded all the same.
        draw: returns a number from 0 to below 1.
    """
    for _, bounds in _documents(split):
        target, at, last = _target_length(max_tokens, draw), 0, len(bounds) - 1
        while at < last and last > 1:
            at = min(at, last - 2)
            end = min(max(bisect_left(bounds, bounds[at] + target, at + 1), at + 2), last)
            cut = at + 1 + int(draw() * (end - at - 1))
            yield bounds[at], bounds[cut], bounds[cut], bounds[end], 0
            at = end


def _documents(split: Split) -> Iterator[tuple[int, list[int]]]:
    """Yield each document's number, and where its sentences start and the last one ends."""
    sentences, documents = np.asarray(split.sentences), np.asarray(split.documents)
    for document in range(len(documents) - 1):
        yield document, sentences[documents[document] : documents[document + 1] + 1].tolist()


def _target_length(max_tokens: int, draw: Draw) -> int:
    """Draw how long the pairs of a document are to be: ``room``, or sometimes 2 to ``room``."""
    return 2 + int(draw() * (max_tokens - 1)) if draw() < SHORT_FRACTION else max_tokens


def _random_sentences(split: Split, document: int, wanted: int, draw: Draw) -> tuple[int, int]:
    """Draw sentences of another document that are as long as is wanted, where it has so many."""
    sentences, documents = np.asarray(split.sentences), np.asarray(split.documents)
    other = int(draw() * (len(documents) - 2))
    other += other >= document
    first, last = int(documents[other]), int(documents[other + 1])
    at = first + int(draw() * (last - first))
    start = int(sentences[at])
    end = at + 1 + int(np.searchsorted(sentences[at + 1 : last + 1], start + wanted))
    return start, int(sentences[min(end, last)])


def truncate_pairs(spans: Offsets, max_tokens: int, rng: np.random.Generator) -> Offsets:
    """Cut pairs down to what a row has room for.

    The longer text of a pair loses tokens until both are equally long, and then the second and
    the first in turn; each token that is lost is the first or the last that is left, by chance.

    Args:
        spans: (pairs, 4), see ``Pairs``.
        max_tokens: tokens of a pair, at most; 2 or more.
        rng: draws.
    """
    starts, ends = spans[:, ::2], spans[:, 1::2]  # (pairs, 2) each
    sizes = ends - starts
    excess = np.maximum(0, sizes.sum(1) - max_tokens)
    ahead = sizes[:, 0] - sizes[:, 1]
    alone = np.minimum(excess, np.abs(ahead))
    both = excess - alone
    from_first = np.where(ahead > 0, alone, 0) + both // 2
    lost = np.stack([from_first, excess - from_first], axis=1)
    front = rng.binomial(lost, 0.5)
    found = np.empty_like(spans)
    found[:, ::2], found[:, 1::2] = starts + front, ends - (lost - front)
    return found


def best_fit_decreasing(sizes: NDArray[np.int64], length: int) -> NDArray[np.int64]:
    """Put things into rows, the largest first, each where it leaves the least room.

    The time is linear in the number of things (Johnson 1974, "Fast algorithms for bin packing",
    on the rule): rows are kept by how much room they have, and a bit tells whether there are any.

    Args:
        sizes: (things,), each at most ``length``.
        length: of a row.

    Returns:
        (things,), the row of each.
    """
    row_of = np.empty(len(sizes), dtype=np.int64)
    by_room: list[list[int]] = [[] for _ in range(length + 1)]
    bits, rows = 0, 0
    order = np.argsort(-sizes.astype(np.int32), kind="stable")
    for thing, size in zip(order.tolist(), sizes[order].tolist(), strict=True):
        if fitting := bits >> size:
            room = size + (fitting & -fitting).bit_length() - 1
            row = by_room[room].pop()
            if not by_room[room]:
                bits ^= 1 << room
        else:
            row, room = rows, length
            rows += 1
        row_of[thing] = row
        by_room[room - size].append(row)
        bits |= 1 << (room - size)
    return row_of
