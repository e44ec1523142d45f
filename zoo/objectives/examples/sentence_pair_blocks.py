"""Sentence pairs of many documents at once, for plans of large corpora.

The documents of a corpus form groups of up to ``GROUP_DOCUMENTS``. In a group, the first pairs of
all documents are made together, then the second pairs of those that have more text, and so on: each
step is a few operations on arrays. A group needs its offsets in memory and no others, since the
random segment of a pair comes from a document of the same group. (In the code released with Devlin
et al. 2018, arXiv:1810.04805, it comes from the same file.) Pairs are packed into rows in blocks,
which are written to the cache.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from zoo.data.cached_arrays import Arrays
from zoo.data.corpus import Split
from zoo.data.offsets import Offsets, map_apart
from zoo.io.progress import progress
from zoo.objectives.examples.bin_packing import best_fit_decreasing

SHORT_FRACTION = 0.1  # Fraction of the documents with shorter pairs.
# Fraction of random segments among pairs of which half of the others are swapped later, so that
# each of three classes has a third.
RANDOM_FRACTION = 1 / 3
GROUP_DOCUMENTS = 1 << 15
GROUP_SENTENCES = 1 << 20  # Sentences of a group, at most, if two documents have no more.
# Longer documents are cut into parts, whose pairs are made at the same time. A document of a
# million sentences would otherwise be a million steps of one pair.
PART_SENTENCES = 256
INT32_TOKENS = 1 << 30  # Tokens of a group, with a margin for the length of a pair.
PACKED_PAIRS = 1 << 18  # Pairs that are packed into rows together, at least.
PAIR_BITS = 32  # Bits of the number of a pair among those that are packed together.
WORD_BITS = 64
BITS_OF_BYTES = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1).sum(1)

Integers: TypeAlias = NDArray[np.signedinteger[Any]]


@dataclass(frozen=True)
class DocumentGroup:
    """Successive documents that are not empty.

    Attributes:
        start: offset of their first token in the split.
        sentences: start of each sentence after ``start``, and the end, (sentences + 1,).
        first_sentences: first sentence of each document, (documents,).
        last_sentences: the sentence after its last one, (documents,).
    """

    start: int
    sentences: Integers
    first_sentences: Integers
    last_sentences: Integers


# Returns the segments of pairs, (pairs, 4), as tokens after the start of a group, and the labels,
# (pairs,). The arguments are the group, the tokens of a pair, and a random generator.
BlockGenerator = Callable[
    [DocumentGroup, int, np.random.Generator], tuple[Integers, NDArray[np.uint8]]
]


def span_dtype(split: Split) -> np.dtype[Any]:
    """Return the dtype of token offsets in a split."""
    return np.dtype(np.uint32 if int(split.sentences[-1]) < 1 << 32 else np.int64)


def pair_row_blocks(
    split: Split,
    make_block: BlockGenerator,
    *,
    length: int,
    special_tokens: int,
    rng: np.random.Generator,
    dupe_factor: int,
) -> Iterator[Arrays]:
    """Make the sentence pairs of a split, and pack them into rows.

    Yields:
        Successive parts of the arrays of ``SentencePairRows``.
    """
    max_tokens = length - special_tokens
    tokens = int(split.sentences[-1])
    dtype = span_dtype(split)
    yield {
        "rows": np.zeros(1, np.int64),
        "spans": np.empty((0, 4), dtype),
        "labels": np.empty(0, np.uint8),
        "truncated": np.empty(0, np.int64),
    }
    first_pair = 0
    truncated = 0
    spans: list[NDArray[Any]] = []
    labels: list[NDArray[np.uint8]] = []
    with progress("making sentence pairs", tokens * dupe_factor, unit="tokens") as advance:
        for _ in range(dupe_factor):
            for group in document_groups(split):
                group_spans, group_labels = make_block(group, max_tokens, rng)
                truncated += count_longer(group_spans, max_tokens)
                group_spans = truncate_block(group_spans, max_tokens, rng)
                spans.append(group_spans.astype(dtype) + dtype.type(group.start))
                labels.append(group_labels)
                advance(int(group.sentences[-1]))
                if sum(map(len, labels)) >= PACKED_PAIRS:
                    block = _pack(spans, labels, length, special_tokens, first_pair)
                    first_pair += len(block["labels"])
                    spans.clear()
                    labels.clear()
                    yield {**block, "truncated": np.array([truncated])}
                    truncated = 0
    if labels:
        block = _pack(spans, labels, length, special_tokens, first_pair)
        yield {**block, "truncated": np.array([truncated])}


def document_groups(split: Split) -> Iterator[DocumentGroup]:
    """Yield the documents of a split in groups of two or more, if there are two."""
    for first, last in _group_bounds(split.documents):
        documents = map_apart(split.documents, first, last + 1)
        first_sentence = int(documents[0])
        offsets = map_apart(split.sentences, first_sentence, int(documents[-1]) + 1)
        start = int(offsets[0])
        # Half of the bytes make searches faster.
        dtype = np.int32 if int(offsets[-1]) - start < INT32_TOKENS else np.int64
        bounds: Integers = (documents - first_sentence).astype(dtype)
        has_text = bounds[1:] > bounds[:-1]
        yield DocumentGroup(
            start,
            (offsets - start).astype(dtype),
            bounds[:-1][has_text],
            bounds[1:][has_text],
        )


def _group_bounds(documents: Offsets) -> Iterator[tuple[int, int]]:
    """Yield the first document of each group, and the one after its last."""
    count = len(documents) - 1
    first = 0
    while first < count:
        last = min(first + GROUP_DOCUMENTS, count)
        ends = map_apart(documents, first + 1, last + 1)
        last_sentence = int(documents[first]) + GROUP_SENTENCES
        group_size = max(2, int(np.searchsorted(ends, last_sentence, side="right")))
        # A small remainder joins the last group.
        if count - first - group_size < max(2, group_size // 2):
            group_size = count - first
        yield first, first + group_size
        first += group_size


def next_sentence_block(
    group: DocumentGroup, max_tokens: int, rng: np.random.Generator
) -> tuple[Integers, NDArray[np.uint8]]:
    """Return pairs for next-sentence prediction: label 0 for the next segment, 1 for another.

    They are chosen as ``sentence_pair_data.next_sentence_pairs`` chooses them.
    """
    sentences = group.sentences
    document, sentence, last = _parts(group)
    target = _target_lengths(len(sentence), max_tokens, rng)
    spans = []
    labels = []
    while len(sentence):
        cut_draws, label_draws = rng.random((2, len(sentence)))
        start = sentences[sentence]
        end = np.minimum(np.searchsorted(sentences, start + target), last)
        cut = sentence + 1 + _scale(cut_draws, end - sentence - 1)
        middle = sentences[cut]
        is_random = (cut == end) | (label_draws < 0.5)
        other_start = middle.copy()
        other_end = sentences[end]

        places = np.flatnonzero(is_random)
        limits = target[places] - middle[places] + start[places]
        other_start[places], other_end[places] = _random_segments(
            group, document[places], limits, rng
        )

        spans.append(np.stack([start, middle, other_start, other_end], axis=1))
        labels.append(is_random.astype(np.uint8))
        next_sentence = np.where(is_random, cut, end)
        has_more = next_sentence < last
        sentence = next_sentence[has_more]
        last = last[has_more]
        document = document[has_more]
        target = target[has_more]
    return _concatenate(spans, sentences.dtype), np.concatenate([np.empty(0, np.uint8), *labels])


def structure_block(
    group: DocumentGroup, max_tokens: int, rng: np.random.Generator
) -> tuple[Integers, NDArray[np.uint8]]:
    """Return pairs of consecutive segments, label 0, and with a random second one, label 1.

    They are chosen as ``sentence_pair_data.structure_pairs`` chooses them.
    """
    return _adjacent_block(group, max_tokens, rng, RANDOM_FRACTION)


def consecutive_block(
    group: DocumentGroup, max_tokens: int, rng: np.random.Generator
) -> tuple[Integers, NDArray[np.uint8]]:
    """Return pairs of consecutive segments, for sentence-order prediction; all have label 0.

    They are chosen as ``sentence_pair_data.consecutive_pairs`` chooses them.
    """
    return _adjacent_block(group, max_tokens, rng, 0)


def _adjacent_block(
    group: DocumentGroup, max_tokens: int, rng: np.random.Generator, random_fraction: float
) -> tuple[Integers, NDArray[np.uint8]]:
    """Return pairs of consecutive segments, of which a fraction has a random second one."""
    sentences = group.sentences
    document, sentence, last = _parts(group)
    target = _target_lengths(len(sentence), max_tokens, rng)
    has_more = last - sentence > 1
    spans = []
    labels = [np.empty(0, np.uint8)]
    while True:
        document = document[has_more]
        last = last[has_more]
        target = target[has_more]
        sentence = np.minimum(sentence[has_more], last - 2)
        if not len(sentence):
            break
        start = sentences[sentence]
        end = np.searchsorted(sentences, start + target)
        end = np.minimum(np.maximum(end, sentence + 2), last)
        cut = sentence + 1 + _scale(rng.random(len(sentence)), end - sentence - 1)
        middle = sentences[cut]
        other_start = middle.copy()
        other_end = sentences[end]
        is_random = np.zeros(len(sentence), dtype=bool)
        if random_fraction:
            is_random = rng.random(len(sentence)) < random_fraction
            places = np.flatnonzero(is_random)
            limits = target[places] - middle[places] + start[places]
            other_start[places], other_end[places] = _random_segments(
                group, document[places], limits, rng
            )
        spans.append(np.stack([start, middle, other_start, other_end], axis=1))
        labels.append(is_random.astype(np.uint8))
        sentence = np.where(is_random, cut, end)
        has_more = sentence < last
    return _concatenate(spans, sentences.dtype), np.concatenate(labels)


def _random_segments(
    group: DocumentGroup, documents: Integers, limits: Integers, rng: np.random.Generator
) -> tuple[Integers, Integers]:
    """Return start and end of segments of other documents, from a random sentence on.

    Args:
        group: two documents or more.
        documents: the document that each segment is not from, (n,).
        limits: number of tokens with which a segment ends, at the end of a sentence, (n,).
        rng: random generator.
    """
    document_draws, sentence_draws = rng.random((2, len(documents)))
    other = _scale(document_draws, len(group.first_sentences) - 1)
    other += other >= documents
    first_sentence = group.first_sentences[other]
    last_sentence = group.last_sentences[other]
    drawn = first_sentence + _scale(sentence_draws, last_sentence - first_sentence)
    start = group.sentences[drawn]
    until = _search(group.sentences, start + limits, drawn + 1, last_sentence)
    return start, group.sentences[until]


def _parts(group: DocumentGroup) -> tuple[Integers, Integers, Integers]:
    """Return documents, or the parts of long ones: number, first sentence and the one after."""
    first = group.first_sentences
    last = group.last_sentences
    number = np.arange(len(first), dtype=first.dtype)
    sizes = last - first
    part_counts = -(-sizes // PART_SENTENCES)
    if part_counts.max(initial=1) == 1:
        return number, first, last
    number = np.repeat(number, part_counts)
    first_parts = np.cumsum(part_counts) - part_counts
    part = np.arange(len(number)) - first_parts[number]
    part_count = part_counts[number].astype(np.int64)
    size = sizes[number].astype(np.int64)
    part_first = first[number] + size * part // part_count
    part_last = first[number] + size * (part + 1) // part_count
    return number, part_first.astype(first.dtype), part_last.astype(first.dtype)


def _search(sentences: Integers, limits: Integers, first: Integers, last: Integers) -> Integers:
    """Return the first sentences, from ``first`` on, that begin at limits or later, or ``last``.

    Limits in any order take NumPy's ``searchsorted`` several times as long as ascending ones.
    """
    place = first
    for bit in reversed(range(int((last - first).max(initial=0)).bit_length())):
        candidate = place + (1 << bit)
        is_before = sentences.take(candidate - 1, mode="clip") < limits
        is_before &= candidate <= last
        place = np.where(is_before, candidate, place)
    return place


def _target_lengths(count: int, max_tokens: int, rng: np.random.Generator) -> Integers:
    """Draw the target lengths of pairs: ``max_tokens``, or a random shorter one."""
    kind_draws, length_draws = rng.random((2, count))
    shorter = 2 + _scale(length_draws, max_tokens - 1)
    lengths = np.where(kind_draws < SHORT_FRACTION, shorter, max_tokens)
    return lengths.astype(np.int32)


def _scale(draws: NDArray[np.float64], sizes: Integers | int) -> NDArray[np.int32]:
    """Return random integers from 0 up to sizes, of uniform draws in [0, 1)."""
    return (draws * sizes).astype(np.int32)


def _concatenate(blocks: list[NDArray[Any]], dtype: np.dtype[Any]) -> Integers:
    return np.concatenate([np.empty((0, 4), dtype), *blocks])


def count_longer(spans: Integers, max_tokens: int) -> int:
    """Return how many pairs, (pairs, 4), have more than a number of tokens."""
    sizes = spans[:, 1] - spans[:, 0] + spans[:, 3] - spans[:, 2]
    return int((sizes > max_tokens).sum())


def truncate_block(spans: Integers, max_tokens: int, rng: np.random.Generator) -> Integers:
    """Truncate pairs to a number of tokens, as ``sentence_pair_data.truncate_pairs`` does.

    Args:
        spans: start and end of the first segment, then of the second, (pairs, 4).
        max_tokens: largest number of tokens of a pair.
        rng: random generator.

    Returns:
        The truncated segments, (pairs, 4).
    """
    first_sizes = spans[:, 1] - spans[:, 0]
    second_sizes = spans[:, 3] - spans[:, 2]
    places = np.flatnonzero(first_sizes + second_sizes > max_tokens)
    excess = (first_sizes + second_sizes)[places] - max_tokens
    difference = (first_sizes - second_sizes)[places]
    from_longer = np.minimum(excess, np.abs(difference))
    from_both = excess - from_longer
    from_first = np.where(difference > 0, from_longer, 0) + from_both // 2
    truncated = spans.copy()
    for column, removed in ((0, from_first), (2, excess - from_first)):
        removed_at_start = count_heads(removed, rng)
        truncated[places, column] += removed_at_start
        truncated[places, column + 1] -= removed - removed_at_start
    return truncated


def count_heads(tosses: Integers, rng: np.random.Generator) -> Integers:
    """Return how many tosses of a coin are heads: binomial numbers, from the bits of words.

    NumPy's ``binomial`` takes four times as long.
    """
    heads = np.zeros_like(tosses)
    remaining = tosses
    while True:
        places = np.flatnonzero(remaining > 0)
        if not len(places):
            return heads
        unused_bits = WORD_BITS - np.minimum(remaining[places], WORD_BITS)
        words = rng.integers(1 << WORD_BITS, size=len(places), dtype=np.uint64)
        words >>= unused_bits.astype(np.uint64)
        heads[places] += BITS_OF_BYTES[words.view(np.uint8).reshape(-1, 8)].sum(1, dtype=np.int32)
        remaining = remaining - WORD_BITS


def _pack(
    spans: list[NDArray[Any]],
    labels: list[NDArray[np.uint8]],
    length: int,
    special_tokens: int,
    first_pair: int,
) -> Arrays:
    """Pack pairs into rows; return a part of the first three arrays of ``SentencePairRows``."""
    all_spans = np.concatenate(spans)
    sizes = all_spans[:, 1] - all_spans[:, 0] + all_spans[:, 3] - all_spans[:, 2] + special_tokens
    row_numbers = best_fit_decreasing(sizes.astype(np.min_scalar_type(length)), length)
    # Sorting rows and pairs as one number takes half the time of a stable sort of rows.
    pairs = np.arange(len(row_numbers))
    order = np.sort((row_numbers.astype(np.int64) << PAIR_BITS) | pairs) & ((1 << PAIR_BITS) - 1)
    return {
        "rows": first_pair + np.cumsum(np.bincount(row_numbers)),
        "spans": all_spans.take(order, axis=0),
        "labels": np.concatenate(labels)[order],
    }
