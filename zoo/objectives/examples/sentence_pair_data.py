"""Sentence pairs of a corpus, and their packing into rows."""

from bisect import bisect_left
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain, islice, repeat
from typing import Any

import numpy as np
from blake3 import blake3
from numpy.typing import NDArray

from zoo.data.cached_arrays import cached_arrays
from zoo.data.corpus import Split
from zoo.data.offsets import Offsets
from zoo.data.rng import generator
from zoo.io.progress import progress
from zoo.version import __version__

SHORT_FRACTION = 0.1  # Fraction of the documents with shorter pairs.
BLOCK_PAIRS = 1 << 18  # Pairs that are converted to arrays, or truncated, at once.
CACHED_SENTENCES = 50_000  # Splits with fewer sentences take less time than their cache.
VERSION = 1  # Version of the pairs and of their arrays. Increase it when either changes.

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
        pairs = slice(self.rows[index], self.rows[index + 1])
        return list(zip(self.spans[pairs].tolist(), self.labels[pairs].tolist(), strict=True))


def cached_pairs(
    split: Split,
    generate: PairGenerator,
    *,
    length: int,
    special_tokens: int,
    seed: int,
    dupe_factor: int,
) -> SentencePairRows:
    """Return the rows of ``make_pairs``, from the cache if they were made before.

    Pairs depend on the offsets of sentences and documents, not on the tokens. The pairs of small
    splits, and of generators whose version is not known here, are made in memory.
    """

    def make() -> SentencePairRows:
        return make_pairs(
            split,
            generate,
            length=length,
            special_tokens=special_tokens,
            rng=generator(seed, "pairs"),
            dupe_factor=dupe_factor,
        )

    has_version = generate in (next_sentence_pairs, consecutive_pairs)
    if not has_version or len(split.sentences) <= CACHED_SENTENCES:
        return make()
    settings = (length, special_tokens, seed, dupe_factor)
    # Another version of NumPy may draw other numbers from the same distribution.
    versions = (VERSION, __version__, np.__version__)
    key = blake3(repr((generate.__name__, settings, versions)).encode())
    if split.key:
        key.update(split.key.encode())
    else:
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
    max_tokens = length - special_tokens
    draw = uniform(rng)
    tokens = int(split.sentences[-1])
    dtype = np.dtype(np.uint32 if tokens < 1 << 32 else np.int64)
    blocks: list[NDArray[np.integer[Any]]] = []  # (pairs, 4) each
    labels = [np.empty(0, dtype=np.uint8)]
    with progress("making sentence pairs", tokens * dupe_factor, unit="tokens") as advance:
        for _ in range(dupe_factor):
            position = 0
            for block in _pair_blocks(generate(split, max_tokens, draw)):
                blocks.append(block[:, :4].astype(dtype))
                labels.append(block[:, 4].astype(np.uint8))
                # First segments are in the order of the split.
                advance(int(block[-1, 0]) - position)
                position = int(block[-1, 0])
            advance(tokens - position)
    spans = np.concatenate([np.empty((0, 4), dtype), *blocks])
    blocks.clear()
    sizes = np.empty(len(spans), dtype=np.min_scalar_type(length))
    for start in range(0, len(spans), BLOCK_PAIRS):
        block = spans[start : start + BLOCK_PAIRS]
        block[:] = truncate_pairs(block.astype(np.int64), max_tokens, rng)
        pair_tokens = block[:, 1] - block[:, 0] + block[:, 3] - block[:, 2]
        sizes[start : start + BLOCK_PAIRS] = pair_tokens + special_tokens
    row_numbers = best_fit_decreasing(sizes, length)
    del sizes
    rows = np.concatenate([np.zeros(1, np.int64), np.cumsum(np.bincount(row_numbers))])
    order = np.argsort(row_numbers, kind="stable")
    del row_numbers
    return SentencePairRows(rows, spans[order], np.concatenate(labels)[order])


def _pair_blocks(pairs: Iterator[Pair]) -> Iterator[NDArray[np.int64]]:
    """Yield the pairs in blocks, (pairs, 5) each."""
    while True:
        numbers = chain.from_iterable(islice(pairs, BLOCK_PAIRS))
        block = np.fromiter(numbers, dtype=np.int64).reshape(-1, 5)
        if not len(block):
            return
        yield block


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
        sentence = documents[document]
        document_end = documents[document + 1]
        target = _target_length(max_tokens, draw)
        while sentence < document_end:
            start = sentences[sentence]
            end = bisect_left(sentences, start + target, sentence + 1, document_end)
            cut = sentence + 1 + int(draw() * (end - sentence - 1))
            middle = sentences[cut]
            if cut == end or draw() < 0.5:
                # The second segment has consecutive sentences of another document, from a random
                # one on.
                other = int(draw() * (len(documents) - 2))
                if other >= document:
                    other += 1
                other_start = documents[other]
                other_end = documents[other + 1]
                drawn = other_start + int(draw() * (other_end - other_start))
                limit = sentences[drawn] + target - (middle - start)
                until = bisect_left(sentences, limit, drawn + 1, other_end)
                yield start, middle, sentences[drawn], sentences[until], 1
                sentence = cut
            else:
                yield start, middle, middle, sentences[end], 0
                sentence = end


def consecutive_pairs(split: Split, max_tokens: int, draw: Draw) -> Iterator[Pair]:
    """Yield pairs of consecutive segments, for sentence-order prediction; all have label 0."""
    # Documents of one sentence are skipped. A single last sentence forms a pair with
    # the sentence before it. (The released code pairs it with a random one, and labels it as
    # swapped.)
    sentences = _offsets(split.sentences)
    documents = _offsets(split.documents)
    for document in range(len(documents) - 1):
        sentence = documents[document]
        document_end = documents[document + 1]
        target = _target_length(max_tokens, draw)
        while sentence < document_end and document_end - documents[document] > 1:
            sentence = min(sentence, document_end - 2)
            start = sentences[sentence]
            end = bisect_left(sentences, start + target, sentence + 2, document_end)
            middle = sentences[sentence + 1 + int(draw() * (end - sentence - 1))]
            yield start, middle, middle, sentences[end], 0
            sentence = end


def _offsets(numbers: Offsets) -> memoryview:
    """Return offsets for access one by one, which is faster than by an array."""
    native = np.ascontiguousarray(numbers, dtype=np.int64)
    return native.view(np.int64).data  # memoryview refuses "<i8", the dtype of mapped files.


def _target_length(max_tokens: int, draw: Draw) -> int:
    """Draw the target length of a document's pairs: ``max_tokens``, or a random shorter one."""
    if draw() < SHORT_FRACTION:
        return 2 + int(draw() * (max_tokens - 1))
    return max_tokens


def truncate_pairs(spans: Offsets, max_tokens: int, rng: np.random.Generator) -> Offsets:
    """Truncate pairs to a number of tokens.

    The longer segment is truncated to the length of the shorter one, then both in turn, beginning
    with the second. Each token is removed from either end with probability 1/2.

    Args:
        spans: offsets of the segments, (pairs, 4), as in ``SentencePairRows``.
        max_tokens: largest number of tokens of a pair.
        rng: random generator.

    Returns:
        Offsets of the truncated segments, (pairs, 4).
    """
    starts = spans[:, ::2]  # (pairs, 2)
    ends = spans[:, 1::2]
    sizes = ends - starts
    excess = np.maximum(0, sizes.sum(1) - max_tokens)
    difference = sizes[:, 0] - sizes[:, 1]
    from_longer = np.minimum(excess, np.abs(difference))
    from_both = excess - from_longer
    from_first = np.where(difference > 0, from_longer, 0) + from_both // 2
    removed = np.stack([from_first, excess - from_first], axis=1)
    removed_at_start = rng.binomial(removed, 0.5)
    truncated = np.empty_like(spans)
    truncated[:, ::2] = starts + removed_at_start
    truncated[:, 1::2] = ends - (removed - removed_at_start)
    return truncated


def best_fit_decreasing(sizes: NDArray[np.integer[Any]], length: int) -> NDArray[np.int32]:
    """Assign items to rows: the largest first, each to the row with the least sufficient room.

    Best-fit decreasing (Johnson 1974, "Fast algorithms for bin packing").

    Args:
        sizes: sizes of the items, (items,), from 1 to ``length``.
        length: size of a row.

    Returns:
        The row of each item, (items,), int32.
    """
    # Items of one size are assigned at once: the fullest row that takes one of them remains the
    # best for the following ones until it has no room for another.
    row_numbers = np.empty(len(sizes), dtype=np.int32)
    order = np.argsort((length - sizes).astype(sizes.dtype), kind="stable")
    counts = np.bincount(sizes, minlength=1)
    # Room -> stack of rows.
    rows_by_room: list[list[NDArray[np.int32]]] = [[] for _ in range(length)]
    item = 0
    row_count = 0
    for size in np.flatnonzero(counts)[::-1].tolist():
        last = item + int(counts[size])
        room = size
        while item < last:
            while room < length and not rows_by_room[room]:
                room += 1
            items_per_row = room // size
            row_limit = -(-(last - item) // items_per_row)
            if room < length:
                rows = _pop(rows_by_room[room], row_limit)
            else:
                rows = np.arange(row_count, row_count + row_limit, dtype=np.int32)
                row_count += row_limit
            placed_items = min(last - item, items_per_row * len(rows))
            placed_rows = np.repeat(rows, items_per_row)[:placed_items]
            row_numbers[order[item : item + placed_items]] = placed_rows
            item += placed_items
            full_rows, remaining_items = divmod(placed_items, items_per_row)
            rows_by_room[room - items_per_row * size].append(rows[:full_rows])
            if remaining_items:
                rows_by_room[room - remaining_items * size].append(rows[full_rows:])
    return row_numbers


def _pop(stack: list[NDArray[np.int32]], count: int) -> NDArray[np.int32]:
    """Take up to ``count`` rows off a stack of arrays, the last row first."""
    pieces = []
    while count and stack:
        rows = stack.pop()
        if len(rows) > count:
            stack.append(rows[:-count])
            rows = rows[-count:]
        pieces.append(rows[::-1])
        count -= len(rows)
    return np.concatenate(pieces)
