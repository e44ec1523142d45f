"""Sentence pairs of a corpus, and their packing into rows.

The pairs are those of ``create_pretraining_data.py``, released with Devlin et al. 2018
(arXiv:1810.04805, appendix A.2) and, for sentence order, with Lan et al. 2020 (arXiv:1909.11942).
Consecutive sentences of a document form a chunk of the length of a row or, in 10 % of the
documents, of a random shorter length. A chunk is split between two sentences into two segments. For
next-sentence prediction, in half of the cases the second segment is replaced by sentences of
another document, and its sentences are used for the next chunk. A pair that is too long is
truncated at either end, the longer segment first.

Two things differ from the released code. There, a row holds one pair and padding; here, short pairs
share a row. There, the data are generated ten times, with different masks, split points and random
segments; here, masks are always drawn anew, and ``dupe_factor`` sets the number of repetitions.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from zoo.data.corpus import Offsets, Split

SHORT_FRACTION = 0.1  # fraction of the documents with shorter pairs
Pair = tuple[int, int, int, int, int]  # start, end of the first and of the second segment, label
Draw = Callable[[], float]
PairGenerator = Callable[[Split, int, Draw], Iterator[Pair]]


@dataclass(frozen=True)
class SentencePairRows:
    """Sentence pairs by row.

    Attributes:
        rows: first pair of each row, and the number of pairs, (rows + 1,), int64.
        spans: start and end of the first segment, then of the second, as token offsets in the
            split, (pairs, 4), int64.
        labels: label of each pair, (pairs,), int64.
    """

    rows: Offsets
    spans: Offsets
    labels: NDArray[np.int64]

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.rows) - 1

    def row(self, index: int) -> list[tuple[list[int], int]]:
        """Return offsets and label of each pair of a row."""
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
    """Make the sentence pairs of a split, and pack them into rows.

    Args:
        split: the documents.
        generate: ``next_sentence_pairs`` or ``consecutive_pairs``.
        length: number of tokens per row.
        special_tokens: number of special tokens per pair.
        rng: random generator.
        dupe_factor: number of passes over the corpus, each with different draws.
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
    """Yield uniform numbers in [0, 1), drawn in blocks because single draws are slow."""
    while True:
        yield from rng.random(4096).tolist()


def next_sentence_pairs(split: Split, max_tokens: int, draw: Draw) -> Iterator[Pair]:
    """Yield pairs for next-sentence prediction: label 0 for the next segment, 1 for a random one.

    As in the released code, a chunk of one sentence is always paired with a random segment: if
    documents are short, more than half of the pairs have label 1.

    Args:
        split: at least two documents.
        max_tokens: target number of tokens per pair; a pair may be longer, see ``truncate_pairs``.
        draw: returns a uniform number in [0, 1).
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
    """Yield pairs of consecutive segments, for sentence-order prediction; all have label 0.

    Documents of one sentence are skipped. A last sentence that would be alone forms a pair with the
    sentence before it. (The released code pairs it with a random one, and labels it as swapped.)

    Args:
        split: the documents.
        max_tokens: target number of tokens per pair; a pair may be longer, see ``truncate_pairs``.
        draw: returns a uniform number in [0, 1).
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
    """Yield the index of each document, and the token offsets of its sentences and of its end."""
    sentences, documents = np.asarray(split.sentences), np.asarray(split.documents)
    for document in range(len(documents) - 1):
        yield document, sentences[documents[document] : documents[document + 1] + 1].tolist()


def _target_length(max_tokens: int, draw: Draw) -> int:
    """Draw the target length of a document's pairs: ``max_tokens``, or a random shorter one."""
    return 2 + int(draw() * (max_tokens - 1)) if draw() < SHORT_FRACTION else max_tokens


def _random_sentences(split: Split, document: int, wanted: int, draw: Draw) -> tuple[int, int]:
    """Draw consecutive sentences of another document, of about ``wanted`` tokens, or to its end."""
    sentences, documents = np.asarray(split.sentences), np.asarray(split.documents)
    drawn = int(draw() * (len(documents) - 2))
    drawn += drawn >= document
    first, last = int(documents[drawn]), int(documents[drawn + 1])
    at = first + int(draw() * (last - first))
    start = int(sentences[at])
    end = at + 1 + int(np.searchsorted(sentences[at + 1 : last + 1], start + wanted))
    return start, int(sentences[min(end, last)])


def truncate_pairs(spans: Offsets, max_tokens: int, rng: np.random.Generator) -> Offsets:
    """Truncate pairs to a number of tokens.

    The longer segment is truncated to the length of the shorter one, then both in turn, beginning
    with the second. Each token is removed from either end with probability 1/2.

    Args:
        spans: offsets of the segments, (pairs, 4), see ``SentencePairRows``.
        max_tokens: largest number of tokens per pair, at least 2.
        rng: random generator.

    Returns:
        Offsets of the truncated segments, (pairs, 4).
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
    truncated = np.empty_like(spans)
    truncated[:, ::2], truncated[:, 1::2] = starts + front, ends - (lost - front)
    return truncated


def best_fit_decreasing(sizes: NDArray[np.int64], length: int) -> NDArray[np.int64]:
    """Assign items to rows: the largest first, each to the row with the least sufficient room.

    Best-fit decreasing (Johnson 1974, "Fast algorithms for bin packing"), in time linear in the
    number of items: rows are listed by their free room, and a bit mask has a bit for each list that
    is not empty.

    Args:
        sizes: size of each item, (items,), at most ``length``.
        length: capacity of a row.

    Returns:
        Row of each item, (items,), int64.
    """
    row_of = np.empty(len(sizes), dtype=np.int64)
    by_room: list[list[int]] = [[] for _ in range(length + 1)]
    nonempty, row_count = 0, 0  # bit n of nonempty: there are rows with room for n
    order = np.argsort(-sizes.astype(np.int32), kind="stable")
    for item, size in zip(order.tolist(), sizes[order].tolist(), strict=True):
        if fitting := nonempty >> size:  # the rows with room for the item
            # the lowest bit that is set stands for the least room that suffices
            room = size + (fitting & -fitting).bit_length() - 1
            row = by_room[room].pop()
            if not by_room[room]:
                nonempty ^= 1 << room
        else:
            row, room = row_count, length
            row_count += 1
        row_of[item] = row
        by_room[room - size].append(row)
        nonempty |= 1 << (room - size)
    return row_of
