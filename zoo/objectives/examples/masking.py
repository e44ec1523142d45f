"""Ways to choose which tokens of a row are hidden: by tokens, words, n-grams or spans.

Each takes a row, how many tokens it may choose, and random numbers. None chooses a special token
or goes from one text into another. Where whole words are chosen, one that would be too many is
passed over, so that sometimes a few tokens less are chosen than could be.
"""

from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from zoo.objectives.examples.packing import PackedRow
from zoo.objectives.examples.vocabulary import Ids

MaskStrategy = Literal["tokens", "words", "ngrams", "spans"]
MAX_NGRAM, MAX_SPAN = 3, 10
_INVERSE = 1 / np.arange(1, MAX_NGRAM + 1)
_GEOMETRIC = 0.8 ** np.arange(MAX_SPAN)  # each word more is less likely by a fifth
NGRAM_PROBS, SPAN_PROBS = _INVERSE / _INVERSE.sum(), _GEOMETRIC / _GEOMETRIC.sum()


class MaskSelection(NamedTuple):
    """What is to be hidden.

    Attributes:
        positions: (n,), in order.
        group_ids: (n,), from 0: tokens with the same number are masked, replaced or kept together.
    """

    positions: Ids
    group_ids: Ids


@dataclass(frozen=True)
class Words:
    """The words of a row.

    Attributes:
        bounds: where each starts and ends.
        stops: of each, the number of the word behind the last one of its text.
        of: (length,), the word that stands at a place, where there is one.
    """

    spans: list[tuple[int, int]]
    document_ends: list[int]
    index: Ids

    @classmethod
    def find(cls, packed: PackedRow, starts_word: NDArray[np.bool_]) -> "Words":
        """Find them: each begins where the vocabulary says so, or where a stretch of text does."""
        own, texts = packed.is_text, packed.document_ids
        fresh = own.copy()  # where a stretch begins
        fresh[1:] &= ~own[:-1] | (texts[1:] != texts[:-1])
        begins = fresh | (own & starts_word[packed.input_ids])
        starts, of = np.flatnonzero(begins), np.cumsum(begins) - 1
        ends = starts + np.bincount(of[own], minlength=len(starts))
        firsts = np.append(np.flatnonzero(fresh[starts]), len(starts))  # of each stretch
        stops = np.repeat(firsts[1:], np.diff(firsts))
        bounds = list(zip(starts.tolist(), ends.tolist(), strict=True))
        return cls(bounds, stops.tolist(), of)


def select_mask_positions(
    strategy: MaskStrategy,
    packed: PackedRow,
    budget: int,
    rng: np.random.Generator,
    starts_word: NDArray[np.bool_],
) -> MaskSelection:
    """Choose tokens.

    Args:
        how: ``tokens``, ``words``, ``ngrams`` or ``spans``; see the function of that name.
        packed: the row.
        budget: how many may be chosen.
        rng: for all that is drawn.
        starts_word: (vocabulary,), see ``TokenizerView.starts_word``.
    """
    if strategy == "tokens":
        places = select_tokens(packed, budget, rng)
        return MaskSelection(places, np.arange(len(places)))
    found = Words.find(packed, starts_word)
    if strategy == "spans":
        taken = select_spans(found, np.flatnonzero(packed.is_text), budget, rng)
    else:
        taken = {"words": select_words, "ngrams": select_ngrams}[strategy](found, budget, rng)
    places = np.flatnonzero(packed.is_text & np.frombuffer(taken, dtype=bool)[found.index])
    if strategy == "spans":
        return MaskSelection(places, label_runs(places, packed.document_ids))
    return MaskSelection(places, np.arange(len(places)))


def label_runs(positions: Ids, document_ids: Ids) -> Ids:
    """Number the stretches that places make up, from 0; places of two texts are of two.

    Args:
        positions: (n,), in order.
        texts: (length,), which text of the row a place is of.

    Returns:
        (n,).
    """
    fresh = (np.diff(positions, prepend=-2) > 1) | (
        document_ids[positions] != document_ids[positions - 1]
    )
    numbers: Ids = np.cumsum(fresh) - 1
    return numbers


def select_tokens(packed: PackedRow, budget: int, rng: np.random.Generator) -> Ids:
    """Choose tokens, each as likely as any other (Devlin et al. 2018, arXiv:1810.04805).

    Returns:
        places, in order.
    """
    found: Ids = np.sort(rng.permutation(np.flatnonzero(packed.is_text))[:budget])
    return found


def select_words(words: Words, budget: int, rng: np.random.Generator) -> bytearray:
    """Choose whole words, each as likely as any other: the whole-word masking of the code
    released with Devlin et al. 2018 (create_pretraining_data.py).

    Returns:
        1 for each word that is chosen; the functions below return the same.
    """
    taken = bytearray(len(words.spans))
    for word in rng.permutation(len(taken)).tolist():
        if budget <= 0:
            break
        start, end = words.spans[word]
        if end - start <= budget:
            budget -= end - start
            taken[word] = 1
    return taken


def select_ngrams(words: Words, budget: int, rng: np.random.Generator) -> bytearray:
    """Choose up to three words in a row, n of them with a probability in proportion to 1 / n.

    Lan et al. 2020, arXiv:1909.11942, section 3.1 and create_pretraining_data.py: where n words
    are too many tokens, or reach beyond the text, fewer are taken; what has a word that is
    chosen already is passed over.
    """
    taken = bytearray(len(words.spans))
    sizes = rng.choice(MAX_NGRAM, size=len(taken), p=NGRAM_PROBS) + 1
    for word, n in zip(rng.permutation(len(taken)).tolist(), sizes.tolist(), strict=True):
        if budget <= 0:
            break
        start, last = words.spans[word][0], min(word + n, words.document_ends[word])
        while last > word and words.spans[last - 1][1] - start > budget:
            last -= 1
        if last > word and not any(taken[word:last]):
            taken[word:last] = b"\1" * (last - word)
            budget -= words.spans[last - 1][1] - start
    return taken


def select_spans(words: Words, anchors: Ids, budget: int, rng: np.random.Generator) -> bytearray:
    """Choose spans of whole words.

    Joshi et al. 2020, arXiv:1907.10529, section 3.1, and its released masking.py: a token is
    drawn of those not chosen so far, and from the start of its word on as many words are taken
    as a geometric distribution says, which is cut off behind ten; spans that meet are one.

    Args:
        found: the words.
        anchors: places of all tokens of texts.
        budget: how many tokens may be chosen.
        rng: draws.
    """
    taken = bytearray(len(words.spans))
    sizes = rng.choice(MAX_SPAN, size=len(anchors), p=SPAN_PROBS) + 1
    firsts = words.index[rng.permutation(anchors)]
    for first, size in zip(firsts.tolist(), sizes.tolist(), strict=True):
        if budget <= 0:
            break
        for word in range(
            first, 0 if taken[first] else min(first + size, words.document_ends[first])
        ):
            start, end = words.spans[word]
            if not taken[word] and end - start > budget:
                break
            budget -= 0 if taken[word] else end - start
            taken[word] = 1
    return taken
