"""Sentence pairs of a corpus, and their packing into rows.

New runs have the pairs of ``sentence_pair_blocks``, which are made for many documents at once. Runs
of earlier versions, and generators of plugins, have pairs that are drawn one after another.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, islice, repeat
from typing import Any

import numpy as np
from blake3 import blake3
from numpy.typing import NDArray

from zoo.data.cached_arrays import Arrays, cached_arrays, cached_growing_arrays
from zoo.data.corpus import Split
from zoo.data.offsets import OffsetReader, Offsets
from zoo.data.rng import generator
from zoo.io.progress import progress
from zoo.objectives.examples.bin_packing import best_fit_decreasing
from zoo.objectives.examples.sentence_pair_blocks import (
    RANDOM_FRACTION,
    SHORT_FRACTION,
    BlockGenerator,
    consecutive_block,
    count_longer,
    next_sentence_block,
    pair_row_blocks,
    span_dtype,
    structure_block,
)
from zoo.version import __version__

BLOCK_PAIRS = 1 << 18  # Pairs that are converted to arrays, or truncated, at once.
CACHED_SENTENCES = 50_000  # Splits with fewer sentences take less time than their cache.
VERSION = 3  # Version of the pairs and of their arrays. Increase it when either changes.

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
    truncated: NDArray[np.int64]  # numbers of pairs that were truncated, which add up

    def __len__(self) -> int:
        return len(self.rows) - 1

    def row(self, index: int) -> list[tuple[list[int], int]]:
        """Return offsets and label of each pair of a row."""
        rows, spans, labels = self._readers
        first, last = rows.pair(index)
        pair_spans = spans.part(4 * first, 4 * last).reshape(-1, 4).tolist()
        return list(zip(pair_spans, labels.part(first, last).tolist(), strict=True))

    @cached_property
    def _readers(self) -> tuple[OffsetReader, OffsetReader, OffsetReader]:
        """Readers of rows, spans and labels, which keep no map of the files in memory."""
        flat_spans = self.spans.reshape(-1)
        return OffsetReader(self.rows), OffsetReader(flat_spans), OffsetReader(self.labels)


def cached_pairs(
    split: Split,
    generate: PairGenerator,
    *,
    length: int,
    special_tokens: int,
    seed: int,
    dupe_factor: int,
) -> SentencePairRows:
    """Return the rows of the pairs of a split, from the cache if they were made before.

    Pairs depend on the offsets of sentences and documents, not on the tokens. The pairs of small
    splits, and of generators whose version is not known here, are made in memory.
    """
    options: Any = {"length": length, "special_tokens": special_tokens, "dupe_factor": dupe_factor}
    key = ""
    if generate in BLOCK_GENERATORS and len(split.sentences) > CACHED_SENTENCES:
        key = _cache_key(split, generate.__name__, seed, *options.values())

    if generate in BLOCK_GENERATORS and split.order == "keyed":
        make_block = BLOCK_GENERATORS[generate]
        empty_arrays: Arrays = {
            "rows": np.empty(0, np.int64),
            "spans": np.empty((0, 4), span_dtype(split)),
            "labels": np.empty(0, np.uint8),
            "truncated": np.empty(0, np.int64),
        }

        def blocks() -> Iterator[Arrays]:
            return pair_row_blocks(split, make_block, rng=generator(seed, "pairs"), **options)

        return SentencePairRows(**cached_growing_arrays("pairs", key, empty_arrays, blocks))

    def make() -> SentencePairRows:
        return make_pairs(split, generate, rng=generator(seed, "pairs"), **options)

    if not key:
        return make()
    return SentencePairRows(**cached_arrays("pairs", key, lambda: vars(make())))


def _cache_key(split: Split, *settings: object) -> str:
    """Return a digest of all that the pairs of a split depend on."""
    # Another version of NumPy may draw other numbers from the same distribution.
    versions = (VERSION, __version__, np.__version__)
    key = blake3(repr((split.order, settings, versions)).encode())
    if split.key:
        key.update(split.key.encode())
    else:
        for offsets in (split.sentences, split.documents):
            key.update(blake3(_offsets(offsets).cast("B")).digest())
    return key.hexdigest(16)


def make_pairs(
    split: Split,
    generate: PairGenerator,
    *,
    length: int,
    special_tokens: int,
    rng: np.random.Generator,
    dupe_factor: int,
) -> SentencePairRows:
    """Make the sentence pairs of a split one after another, and pack them into rows."""
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
    dtype = span_dtype(split)
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
    truncated = 0
    for start in range(0, len(spans), BLOCK_PAIRS):
        block = spans[start : start + BLOCK_PAIRS]
        long_spans = block.astype(np.int64)
        truncated += count_longer(long_spans, max_tokens)
        block[:] = truncate_pairs(long_spans, max_tokens, rng)
        pair_tokens = block[:, 1] - block[:, 0] + block[:, 3] - block[:, 2]
        sizes[start : start + BLOCK_PAIRS] = pair_tokens + special_tokens
    row_numbers = best_fit_decreasing(sizes, length)
    del sizes
    rows = np.concatenate([np.zeros(1, np.int64), np.cumsum(np.bincount(row_numbers))])
    order = np.argsort(row_numbers, kind="stable")
    del row_numbers
    all_labels = np.concatenate(labels)[order]
    return SentencePairRows(rows, spans[order], all_labels, np.array([truncated]))


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
                limit = target - (middle - start)
                other_start, other_end = _random_segment(
                    sentences, documents, document, limit, draw
                )
                yield start, middle, other_start, other_end, 1
                sentence = cut
            else:
                yield start, middle, middle, sentences[end], 0
                sentence = end


def structure_pairs(split: Split, max_tokens: int, draw: Draw) -> Iterator[Pair]:
    """Yield pairs of consecutive segments, label 0, and with a random second one, label 1."""
    return _adjacent_pairs(split, max_tokens, draw, RANDOM_FRACTION)


def consecutive_pairs(split: Split, max_tokens: int, draw: Draw) -> Iterator[Pair]:
    """Yield pairs of consecutive segments, for sentence-order prediction; all have label 0."""
    return _adjacent_pairs(split, max_tokens, draw, 0)


def _adjacent_pairs(
    split: Split, max_tokens: int, draw: Draw, random_fraction: float
) -> Iterator[Pair]:
    """Yield pairs of consecutive segments, of which a fraction has a random second one."""
    # Documents of one sentence are skipped, and a single last sentence forms a pair with the
    # sentence before it, so that the fraction does not depend on the lengths of documents. (The
    # released code of sentence-order prediction pairs it with a random one, and labels it as
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
            cut = sentence + 1 + int(draw() * (end - sentence - 1))
            middle = sentences[cut]
            if random_fraction and draw() < random_fraction:
                limit = target - (middle - start)
                other_start, other_end = _random_segment(
                    sentences, documents, document, limit, draw
                )
                yield start, middle, other_start, other_end, 1
                sentence = cut
            else:
                yield start, middle, middle, sentences[end], 0
                sentence = end


def _random_segment(
    sentences: memoryview, documents: memoryview, document: int, limit: int, draw: Draw
) -> tuple[int, int]:
    """Return a segment of another document: consecutive sentences from a random one on.

    Args:
        sentences: offsets of the sentences.
        documents: offsets of the documents, two or more.
        document: the document that the segment is not from.
        limit: number of tokens with which it ends, at the end of a sentence.
        draw: returns a uniform number in [0, 1).
    """
    other = int(draw() * (len(documents) - 2))
    if other >= document:
        other += 1
    first = documents[other]
    last = documents[other + 1]
    drawn = first + int(draw() * (last - first))
    until = bisect_left(sentences, sentences[drawn] + limit, drawn + 1, last)
    return sentences[drawn], sentences[until]


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


# Generators of pairs whose versions are known, and what makes their pairs for many documents.
BLOCK_GENERATORS: dict[PairGenerator, BlockGenerator] = {
    next_sentence_pairs: next_sentence_block,
    consecutive_pairs: consecutive_block,
    structure_pairs: structure_block,
}
