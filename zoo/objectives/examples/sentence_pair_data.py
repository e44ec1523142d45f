"""Sentence pairs of a corpus, and their packing into rows."""

from bisect import bisect_left
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain, islice, repeat
from typing import Any

import numpy as np
from blake3 import blake3
from numpy.typing import NDArray

from zoo.data.array_cache import cached_arrays
from zoo.data.corpus import Offsets, Split
from zoo.data.rng import generator
from zoo.io.progress import progress
from zoo.version import __version__

SHORT_FRACTION = 0.1  # fraction of the documents with shorter pairs
BLOCK_PAIRS = 1 << 18  # pairs that are converted to arrays, or truncated, at once
CACHED_SENTENCES = 50_000  # splits with fewer sentences take less time than their cache
VERSION = 1  # of the pairs and of their arrays: increase it when either changes

Pair = tuple[int, int, int, int, int]  # start, end of the first and of the second segment, label
Draw = Callable[[], float]
PairGenerator = Callable[[Split, int, Draw], Iterator[Pair]]


@dataclass(frozen=True)
class SentencePairRows:
    """Sentence pairs by row."""

    rows: Offsets  # first pair of each row, and the number of pairs, (rows + 1,), int64
    # start and end of the first segment, then of the second, as token offsets in the split, (pairs,
    # 4), uint32, or int64 if the split has more tokens
    spans: NDArray[np.integer[Any]]
    labels: NDArray[np.uint8]

    def __len__(self) -> int:
        return len(self.rows) - 1

    def row(self, index: int) -> list[tuple[list[int], int]]:
        """Return offsets and label of each pair of a row."""
        there = slice(self.rows[index], self.rows[index + 1])
        return list(zip(self.spans[there].tolist(), self.labels[there].tolist(), strict=True))


def cached_pairs(
    split: Split,
    generate: PairGenerator,
    *,
    length: int,
    special_tokens: int,
    seed: int,
    dupe_factor: int,
) -> SentencePairRows:
    """Return the rows of ``make_pairs``, from the cache if they were made before."""

    # Pairs depend on the offsets of sentences and documents, not on the tokens. The pairs of small
    # splits, and of generators whose version is not known here, are made in memory.
    def make() -> SentencePairRows:
        return make_pairs(
            split,
            generate,
            length=length,
            special_tokens=special_tokens,
            rng=generator(seed, "pairs"),
            dupe_factor=dupe_factor,
        )

    ours = generate in (next_sentence_pairs, consecutive_pairs)
    if not ours or len(split.sentences) <= CACHED_SENTENCES:
        return make()
    settings = (length, special_tokens, seed, dupe_factor)
    # another NumPy may draw other numbers of the same distribution
    versions = (VERSION, __version__, np.__version__)
    key = blake3(repr((generate.__name__, settings, versions)).encode())
    for offsets in (split.sentences, split.documents):
        key.update(blake3(_offsets(offsets).cast("B")).digest())
    return SentencePairRows(**cached_arrays("pairs", key.hexdigest(16), lambda: vars(make())))


def make_pairs(
    split: Split,
    generate: PairGenerator,
    *,
    length: int,
    special_tokens: int,
    rng: np.random.Generator,
    dupe_factor: int,
) -> SentencePairRows:
    """Make the sentence pairs of a split, and pack them into rows."""
    # The pairs follow ``create_pretraining_data.py``, released with Devlin et al. 2018
    # (arXiv:1810.04805, appendix A.2) and, for sentence order, with Lan et al. 2020
    # (arXiv:1909.11942). Consecutive sentences of a document form a chunk of the length of a row
    # or, in 10 % of the documents, of a random shorter length. A chunk is split between two
    # sentences into two segments. For next-sentence prediction, in half of the cases the second
    # segment is replaced by sentences of another document, and its sentences are used for the next
    # chunk. A pair that is too long is truncated at either end, the longer segment first.
    #
    # Two things differ from the released code. There, a row holds one pair and padding; here, short
    # pairs share a row. There, the data are generated ten times, with different masks, split points
    # and random segments; here, masks are always drawn anew, and ``dupe_factor`` sets the number of
    # repetitions.
    room = length - special_tokens
    draw = uniform(rng)
    tokens = int(split.sentences[-1])
    dtype = np.dtype(np.uint32 if tokens < 1 << 32 else np.int64)
    blocks: list[NDArray[np.integer[Any]]] = []  # (pairs, 4) each
    labels = [np.empty(0, dtype=np.uint8)]
    with progress("making sentence pairs", tokens * dupe_factor, unit="tokens") as advance:
        for _ in range(dupe_factor):
            pairs = generate(split, room, draw)
            done = 0
            while len(
                block := np.fromiter(
                    chain.from_iterable(islice(pairs, BLOCK_PAIRS)), dtype=np.int64
                ).reshape(-1, 5)
            ):
                blocks.append(block[:, :4].astype(dtype))
                labels.append(block[:, 4].astype(np.uint8))
                advance(int(block[-1, 0]) - done)  # first segments are in the order of the split
                done = int(block[-1, 0])
            advance(tokens - done)
    spans = np.concatenate([np.empty((0, 4), dtype), *blocks])
    blocks.clear()
    sizes = np.empty(len(spans), dtype=np.min_scalar_type(length))
    for at in range(0, len(spans), BLOCK_PAIRS):
        block = spans[at : at + BLOCK_PAIRS]
        block[:] = truncate_pairs(block.astype(np.int64), room, rng)
        tokens_of = block[:, 1] - block[:, 0] + block[:, 3] - block[:, 2]
        sizes[at : at + BLOCK_PAIRS] = tokens_of + special_tokens
    row_of = best_fit_decreasing(sizes, length)
    del sizes
    rows = np.concatenate([np.zeros(1, np.int64), np.cumsum(np.bincount(row_of))])
    order = np.argsort(row_of, kind="stable")
    del row_of
    return SentencePairRows(rows, spans[order], np.concatenate(labels)[order])


def uniform(rng: np.random.Generator) -> Draw:
    """Return a function that draws uniform numbers in [0, 1), in blocks for speed."""
    blocks = (rng.random(4096).tolist() for _ in repeat(None))
    return chain.from_iterable(blocks).__next__


def next_sentence_pairs(split: Split, max_tokens: int, draw: Draw) -> Iterator[Pair]:
    """Yield pairs for next-sentence prediction: label 0 for the next segment, 1 for another."""
    # As in the released code, a chunk of one sentence is always paired with a random segment: if
    # documents are short, more than half of the pairs have label 1.
    sentences = _offsets(split.sentences)
    documents = _offsets(split.documents)
    for document in range(len(documents) - 1):
        at = documents[document]
        last = documents[document + 1]
        target = _target_length(max_tokens, draw)
        while at < last:
            start = sentences[at]
            end = bisect_left(sentences, start + target, at + 1, last)
            cut = at + 1 + int(draw() * (end - at - 1))
            middle = sentences[cut]
            if cut == end or draw() < 0.5:
                # consecutive sentences of another document, from a random one on
                other = int(draw() * (len(documents) - 2))
                other += other >= document
                first = documents[other]
                after = documents[other + 1]
                drawn = first + int(draw() * (after - first))
                wanted = sentences[drawn] + target - (middle - start)
                until = bisect_left(sentences, wanted, drawn + 1, after)
                yield start, middle, sentences[drawn], sentences[until], 1
                at = cut
            else:
                yield start, middle, middle, sentences[end], 0
                at = end


def consecutive_pairs(split: Split, max_tokens: int, draw: Draw) -> Iterator[Pair]:
    """Yield pairs of consecutive segments, for sentence-order prediction; all have label 0."""
    # Documents of one sentence are skipped. A single last sentence forms a pair with
    # the sentence before it. (The released code pairs it with a random one, and labels it as
    # swapped.)
    sentences = _offsets(split.sentences)
    documents = _offsets(split.documents)
    for document in range(len(documents) - 1):
        at = documents[document]
        last = documents[document + 1]
        target = _target_length(max_tokens, draw)
        while at < last and last - documents[document] > 1:
            at = min(at, last - 2)
            start = sentences[at]
            end = bisect_left(sentences, start + target, at + 2, last)
            middle = sentences[at + 1 + int(draw() * (end - at - 1))]
            yield start, middle, middle, sentences[end], 0
            at = end


def _offsets(numbers: Offsets) -> memoryview:
    """Return offsets for access one by one, which is faster than by an array."""
    native = np.ascontiguousarray(numbers, dtype=np.int64)
    return native.view(np.int64).data  # memoryview refuses "<i8", the dtype of mapped files


def _target_length(max_tokens: int, draw: Draw) -> int:
    """Draw the target length of a document's pairs: ``max_tokens``, or a random shorter one."""
    return 2 + int(draw() * (max_tokens - 1)) if draw() < SHORT_FRACTION else max_tokens


def truncate_pairs(spans: Offsets, max_tokens: int, rng: np.random.Generator) -> Offsets:
    """Truncate pairs to a number of tokens, by offsets of their segments, (pairs, 4)."""
    # As in ``SentencePairRows``; the result has the same shape.
    # The longer segment is truncated to the length of the shorter one, then both in turn, beginning
    # with the second. Each token is removed from either end with probability 1/2.
    # (pairs, 2) each
    starts = spans[:, ::2]
    ends = spans[:, 1::2]
    sizes = ends - starts
    excess = np.maximum(0, sizes.sum(1) - max_tokens)
    ahead = sizes[:, 0] - sizes[:, 1]
    alone = np.minimum(excess, np.abs(ahead))
    both = excess - alone
    from_first = np.where(ahead > 0, alone, 0) + both // 2
    lost = np.stack([from_first, excess - from_first], axis=1)
    front = rng.binomial(lost, 0.5)
    truncated = np.empty_like(spans)
    truncated[:, ::2] = starts + front
    truncated[:, 1::2] = ends - (lost - front)
    return truncated


def best_fit_decreasing(sizes: NDArray[np.integer[Any]], length: int) -> NDArray[np.int32]:
    """Assign items to rows: the largest first, each to the row with the least sufficient room."""
    # sizes: (items,), from 1 to ``length``; the result is the row of each item, (items,), int32
    # Best-fit decreasing (Johnson 1974, "Fast algorithms for bin packing"). Items of one size are
    # assigned at once: the fullest row that takes one of them remains the best for the following
    # ones until it has no room for another.
    row_of = np.empty(len(sizes), dtype=np.int32)
    order = np.argsort((length - sizes).astype(sizes.dtype), kind="stable")
    counts = np.bincount(sizes, minlength=1)
    free: list[list[NDArray[np.int32]]] = [[] for _ in range(length)]  # room -> stack of rows
    item = row_count = 0
    for size in np.flatnonzero(counts)[::-1].tolist():
        last = item + int(counts[size])
        room = size
        while item < last:
            room = next((r for r in range(room, length) if free[r]), length)
            fitting = room // size
            wanted = -(-(last - item) // fitting)
            if room < length:
                rows = _pop(free[room], wanted)
            else:
                rows = np.arange(row_count, row_count + wanted, dtype=np.int32)
                row_count += wanted
            placed = min(last - item, fitting * len(rows))
            row_of[order[item : item + placed]] = np.repeat(rows, fitting)[:placed]
            item += placed
            full, rest = divmod(placed, fitting)
            free[room - fitting * size].append(rows[:full])
            if rest:
                free[room - rest * size].append(rows[full:])
    return row_of


def _pop(stack: list[NDArray[np.int32]], count: int) -> NDArray[np.int32]:
    """Take up to ``count`` rows off a stack of arrays, the last row first."""
    taken = []
    while count and stack:
        rows = stack.pop()
        if len(rows) > count:
            stack.append(rows[:-count])
            rows = rows[-count:]
        taken.append(rows[::-1])
        count -= len(rows)
    return np.concatenate(taken)
