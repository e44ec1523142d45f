"""Selection of the tokens of a row to mask, by tokens, words, n-grams or spans."""

import math
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from zoo.objectives.examples.packing import PackedRow
from zoo.objectives.examples.vocabulary import Ids

MaskStrategy = Literal["tokens", "words", "ngrams", "spans"]
MAX_NGRAM = 3
MAX_SPAN = 10
# The probability of n words is proportional to 1 / n.
_NGRAM_WEIGHTS = 1 / np.arange(1, MAX_NGRAM + 1)
NGRAM_PROBS = _NGRAM_WEIGHTS / _NGRAM_WEIGHTS.sum()
# The number of words has a geometric distribution with p = 0.2.
_SPAN_WEIGHTS = 0.8 ** np.arange(MAX_SPAN)
SPAN_PROBS = _SPAN_WEIGHTS / _SPAN_WEIGHTS.sum()


class MaskSelection(NamedTuple):
    """Tokens to mask."""

    positions: Ids  # Sorted positions, (n,), int64.
    # Groups from 0, (n,), int64; tokens of a group are masked, replaced or unchanged together.
    group_ids: Ids


@dataclass(frozen=True)
class Words:
    """The words of a row."""

    spans: list[tuple[int, int]]  # Start and end of each word.
    document_ends: list[int]  # The index of the first word after each word's segment.
    # Index of the word of each token, (length,), int64; only meaningful for text tokens.
    index: Ids

    @classmethod
    def find(cls, packed: PackedRow, starts_word: NDArray[np.bool_]) -> "Words":
        """Return the words of a row, by ``TokenizerView.starts_word``, (vocab_size,), bool."""
        # A word starts at a token with ``starts_word``, and at the start of each run of text
        # tokens.
        is_text = packed.is_text
        document_ids = packed.document_ids
        is_run_start = is_text.copy()
        is_run_start[1:] &= ~is_text[:-1] | (document_ids[1:] != document_ids[:-1])
        is_word_start = is_run_start | (is_text & starts_word[packed.input_ids])
        starts = np.flatnonzero(is_word_start)
        index = np.cumsum(is_word_start) - 1
        ends = starts + np.bincount(index[is_text], minlength=len(starts))
        # The first word of each run, and the number of words.
        first_words = np.append(np.flatnonzero(is_run_start[starts]), len(starts))
        document_ends = np.repeat(first_words[1:], np.diff(first_words))
        spans = list(zip(starts.tolist(), ends.tolist(), strict=True))
        return cls(spans, document_ends.tolist(), index)


def mask_budget(strategy: MaskStrategy, packed: PackedRow, fraction: float) -> int:
    """Return the number of tokens of a row to select, at least one."""
    # Spans take the fraction of text tokens, rounded up, like ``PairWithSpanMaskingScheme`` of the
    # code released with arXiv:1907.10529. Other strategies take the fraction of all tokens with
    # special tokens and without padding, rounded, halves to even, like
    # ``create_masked_lm_predictions`` of the code released with arXiv:1810.04805.
    if strategy == "spans":
        num_text_tokens = int(packed.is_text.sum())
        return math.ceil(num_text_tokens * fraction)
    num_tokens = int(np.count_nonzero(packed.document_ids))
    return max(1, round(num_tokens * fraction))


def select_mask_positions(
    strategy: MaskStrategy,
    packed: PackedRow,
    budget: int,
    rng: np.random.Generator,
    starts_word: NDArray[np.bool_],
) -> MaskSelection:
    """Select the tokens of a row to mask, by ``TokenizerView.starts_word``, (vocab_size,), bool.

    No strategy selects a special token or crosses a segment boundary. Whole words and n-grams that
    exceed the budget are skipped, so that a few tokens less than the budget may be selected; the
    last span is cut.
    """
    if strategy == "tokens":
        positions = select_tokens(packed, budget, rng)
        return MaskSelection(positions, np.arange(len(positions)))
    words = Words.find(packed, starts_word)
    if strategy == "spans":
        positions = select_spans(words, np.flatnonzero(packed.is_text), budget, rng)
        return MaskSelection(positions, label_runs(positions, packed.document_ids))
    if strategy == "words":
        selection = select_words(words, budget, rng)
    else:
        selection = select_ngrams(words, budget, rng)
    is_selected = np.frombuffer(selection, dtype=bool)
    positions = np.flatnonzero(packed.is_text & is_selected[words.index])
    return MaskSelection(positions, np.arange(len(positions)))


def label_runs(positions: Ids, document_ids: Ids) -> Ids:
    """Number the runs of adjacent sorted positions in one segment, from 0: (n,), int64.

    Args:
        positions: sorted positions, (n,).
        document_ids: segment of each token of the row, (length,).
    """
    follows_gap = np.diff(positions, prepend=-2) > 1
    begins_segment = document_ids[positions] != document_ids[positions - 1]
    numbers: Ids = np.cumsum(follows_gap | begins_segment) - 1
    return numbers


def select_tokens(packed: PackedRow, budget: int, rng: np.random.Generator) -> Ids:
    """Select tokens uniformly or by their weights: sorted positions, (n,)."""
    # Devlin et al. 2018 (arXiv:1810.04805) draw uniformly. With weights, one after another is drawn
    # with a probability proportional to its weight, without replacement: the order of exponential
    # variates divided by the weights (Efraimidis and Spirakis 2006, Information Processing Letters
    # 97).
    candidates: Ids = np.flatnonzero(packed.is_text)
    if packed.mask_weights is None:
        random_order = rng.permutation(candidates)
    else:
        times = rng.exponential(size=len(candidates)) / packed.mask_weights[candidates]
        random_order = candidates[np.argsort(times)]
    return np.sort(random_order[:budget])


def select_words(words: Words, budget: int, rng: np.random.Generator) -> bytearray:
    """Select whole words uniformly: 1 for each selected word and 0 for the others, (words,)."""
    # This is the whole-word masking of the code released with Devlin et al. 2018
    # (``create_pretraining_data.py``).
    selection = bytearray(len(words.spans))
    for word in rng.permutation(len(selection)).tolist():
        if budget <= 0:
            break
        start, end = words.spans[word]
        length = end - start
        if length <= budget:
            budget -= length
            selection[word] = 1
    return selection


def select_ngrams(words: Words, budget: int, rng: np.random.Generator) -> bytearray:
    """Select n-grams of up to three words, with a probability proportional to 1 / n.

    Returns:
        1 for each selected word and 0 for the others, (words,).
    """
    # Lan et al. 2020, arXiv:1909.11942, section 3.1 and ``create_pretraining_data.py``. An n-gram
    # that exceeds the budget or its segment is shortened. One with a word that is already selected
    # is skipped.
    selection = bytearray(len(words.spans))
    sizes = rng.choice(MAX_NGRAM, size=len(selection), p=NGRAM_PROBS) + 1
    for word, n in zip(rng.permutation(len(selection)).tolist(), sizes.tolist(), strict=True):
        if budget <= 0:
            break
        start = words.spans[word][0]
        end_word = min(word + n, words.document_ends[word])
        while end_word > word and words.spans[end_word - 1][1] - start > budget:
            end_word -= 1
        if end_word > word and not any(selection[word:end_word]):
            selection[word:end_word] = b"\1" * (end_word - word)
            budget -= words.spans[end_word - 1][1] - start
    return selection


def select_spans(words: Words, anchors: Ids, budget: int, rng: np.random.Generator) -> Ids:
    """Select spans of up to ten words, with lengths from a truncated geometric distribution.

    Args:
        words: words of the row.
        anchors: positions of all text tokens, (n,).
        budget: number of tokens to select.
        rng: random generator.

    Returns:
        Sorted positions of the selected tokens, (n,).
    """
    # Joshi et al. 2020, arXiv:1907.10529, section 3.1, and ``PairWithSpanMaskingScheme`` of the
    # released code (fairseq/data/masking.py). A span starts at the word of a random token that is
    # not yet selected. Adjacent spans are merged, and the last span is cut at the budget, also
    # within a word.
    is_selected = np.zeros(len(words.index), dtype=bool)
    sizes = rng.choice(MAX_SPAN, size=len(anchors), p=SPAN_PROBS) + 1
    for anchor, size in zip(rng.permutation(anchors).tolist(), sizes.tolist(), strict=True):
        if budget <= 0:
            break
        if is_selected[anchor]:
            continue
        first_word = int(words.index[anchor])
        last_word = min(first_word + size, words.document_ends[first_word]) - 1
        start = words.spans[first_word][0]
        end = words.spans[last_word][1]
        new_positions = start + np.flatnonzero(~is_selected[start:end])[:budget]
        is_selected[new_positions] = True
        budget -= len(new_positions)
    return np.flatnonzero(is_selected)
