"""Sentence pairs as earlier commits made them, item by item: the reference of today's arrays."""

from bisect import bisect_left
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from zoo.data.corpus import Split

SHORT_FRACTION = 0.1
Pair = tuple[int, int, int, int, int]
Draw = Callable[[], float]


def make_pairs(
    split: Split,
    generate: Callable[[Split, int, Draw], Iterator[Pair]],
    *,
    length: int,
    special_tokens: int,
    rng: np.random.Generator,
    dupe_factor: int,
) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Return the first pair of each row, the spans and the labels."""
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
    return np.cumsum([0, *np.bincount(row_of)]), spans[order], made[order, 4]


def uniform(rng: np.random.Generator) -> Iterator[float]:
    while True:
        yield from rng.random(4096).tolist()


def next_sentence_pairs(split: Split, max_tokens: int, draw: Draw) -> Iterator[Pair]:
    for document, bounds in documents_of(split):
        target, at, last = target_length(max_tokens, draw), 0, len(bounds) - 1
        while at < last:
            end = min(bisect_left(bounds, bounds[at] + target, at + 1), last)
            cut = at + 1 + int(draw() * (end - at - 1))
            first = bounds[at], bounds[cut]
            if cut == end or draw() < 0.5:
                wanted = target - (first[1] - first[0])
                yield *first, *random_sentences(split, document, wanted, draw), 1
                at = cut
            else:
                yield *first, bounds[cut], bounds[end], 0
                at = end


def consecutive_pairs(split: Split, max_tokens: int, draw: Draw) -> Iterator[Pair]:
    for _, bounds in documents_of(split):
        target, at, last = target_length(max_tokens, draw), 0, len(bounds) - 1
        while at < last and last > 1:
            at = min(at, last - 2)
            end = min(max(bisect_left(bounds, bounds[at] + target, at + 1), at + 2), last)
            cut = at + 1 + int(draw() * (end - at - 1))
            yield bounds[at], bounds[cut], bounds[cut], bounds[end], 0
            at = end


def documents_of(split: Split) -> Iterator[tuple[int, list[int]]]:
    sentences, documents = split.sentences, split.documents
    for document in range(len(documents) - 1):
        yield document, sentences[documents[document] : documents[document + 1] + 1].tolist()


def target_length(max_tokens: int, draw: Draw) -> int:
    return 2 + int(draw() * (max_tokens - 1)) if draw() < SHORT_FRACTION else max_tokens


def random_sentences(split: Split, document: int, wanted: int, draw: Draw) -> tuple[int, int]:
    sentences, documents = split.sentences, split.documents
    drawn = int(draw() * (len(documents) - 2))
    drawn += drawn >= document
    first, last = int(documents[drawn]), int(documents[drawn + 1])
    at = first + int(draw() * (last - first))
    start = int(sentences[at])
    end = at + 1 + int(np.searchsorted(sentences[at + 1 : last + 1], start + wanted))
    return start, int(sentences[min(end, last)])


def truncate_pairs(spans: NDArray[Any], max_tokens: int, rng: np.random.Generator) -> NDArray[Any]:
    starts, ends = spans[:, ::2], spans[:, 1::2]
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


def best_fit_decreasing(sizes: NDArray[Any], length: int) -> NDArray[Any]:
    row_of = np.empty(len(sizes), dtype=np.int64)
    by_room: list[list[int]] = [[] for _ in range(length + 1)]
    nonempty, row_count = 0, 0
    order = np.argsort(-sizes.astype(np.int32), kind="stable")
    for item, size in zip(order.tolist(), sizes[order].tolist(), strict=True):
        if fitting := nonempty >> size:
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
