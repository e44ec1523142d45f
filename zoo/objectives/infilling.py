"""Text infilling and sentence permutation (Lewis et al. 2019, arXiv:1910.13461, section 2.2)."""

import math
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from zoo.objectives.examples.vocabulary import Ids
from zoo.objectives.options import Options
from zoo.objectives.seq2seq import SEQ2SEQ_LM, SentenceObjective
from zoo.overrides import override

if TYPE_CHECKING:
    from zoo.families.base import Family
    from zoo.families.config import Config

MIN_PROBABILITY = 1e-7  # The probability of the longest span that is drawn is below this.


class PermutationOptions(Options, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of sentence permutation."""

    permute_sentences: float = 1.0  # Fraction of the sentences of a text that change places.

    def __post_init__(self) -> None:
        self.check_fraction("permute_sentences", ends=True)


class InfillingOptions(Options, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of text infilling."""

    noise_density: float = 0.3  # Fraction of the words that is masked.
    poisson_lambda: float = 3.0  # Mean length of a span in words, of a Poisson distribution.
    random_token_prob: float = 0.0  # Fraction of the mask tokens that become a random token.

    def __post_init__(self) -> None:
        self.check_fraction("noise_density")
        self.check_fraction("random_token_prob", ends=True)
        if not 0 < self.poisson_lambda <= 50:
            raise ValueError(f"poisson_lambda is {self.poisson_lambda}, not over 0 and at most 50")


class InfillingAndPermutationOptions(
    InfillingOptions, frozen=True, kw_only=True, forbid_unknown_fields=True
):
    """Options of text infilling and of sentence permutation."""

    permute_sentences: float = 1.0  # Fraction of the sentences of a text that change places.

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_fraction("permute_sentences", ends=True)


class RestoreText(SentenceObjective):
    """Base class of objectives whose target is the original text."""

    # The source is a corrupted text, the target the original. In *text infilling*, each of several
    # spans is replaced by one mask token; spans of length 0 insert one. In *sentence permutation*,
    # the sentences are in random order. The paper's large models learn from both at once (section
    # 5.1).
    #
    # The noise follows ``denoising_dataset.py`` of the released code (fairseq). The mask covers a
    # fraction of the *words*; lengths of spans are drawn until they reach that number, and the last
    # one is cut. Spans start at random words, and may overlap. Two things differ: sentences are the
    # corpus's, where the code ends one at each full stop; and a source is never longer than its
    # text, so that mask tokens that would be inserted into a text of a few words are left out.

    @override
    def max_lengths(self, tokens: int) -> tuple[int, int] | None:
        """The source is at most as long as the text."""
        return tokens, tokens

    @override
    def source_and_target(
        self, sentences: Sequence[Ids], rng: np.random.Generator
    ) -> tuple[Ids, Ids]:
        return self.corrupt(sentences, rng), np.concatenate(sentences)

    def corrupt(self, sentences: Sequence[Ids], rng: np.random.Generator) -> Ids:
        """Return the source of a text, (n,), at most as long as its sentences together."""
        raise NotImplementedError


class SentencePermutation(RestoreText):
    """Predicts the original order of a text whose sentences are shuffled."""

    name: ClassVar[str] = "sentence-permutation"
    options_type: ClassVar[type[Options]] = PermutationOptions

    @property
    @override
    def visible_labels(self) -> Mapping[str, float]:
        return {SEQ2SEQ_LM: 1.0}

    @override
    def corrupt(self, sentences: Sequence[Ids], rng: np.random.Generator) -> Ids:
        order = permuted_order(len(sentences), self.options.permute_sentences, rng)
        return np.concatenate([sentences[index] for index in order])


class TextInfilling(RestoreText):
    """Predicts the original text of one in which spans are replaced by a mask token each."""

    name: ClassVar[str] = "text-infilling"
    options_type: ClassVar[type[Options]] = InfillingOptions

    @classmethod
    @override
    def unsupported_reason(cls, family: "Family", config: "Config") -> str | None:
        if family.special_tokens and "mask" not in family.special_tokens:
            return "its tokenizers have no mask token"
        return super().unsupported_reason(family, config)

    @property
    @override
    def visible_labels(self) -> Mapping[str, float]:
        # Overlapping spans, and spans that end with the text, mask fewer words: over half of them.
        return {SEQ2SEQ_LM: 1 - self.options.noise_density / 2}

    @cached_property
    def mask_id(self) -> int:
        """Id of the mask token."""
        return self.vocabulary.special_token_id("mask")

    @cached_property
    def span_lengths(self) -> NDArray[np.float64]:
        """Probability of each length of a span, from 0, (lengths,)."""
        return poisson_probabilities(self.options.poisson_lambda)

    @override
    def corrupt(self, sentences: Sequence[Ids], rng: np.random.Generator) -> Ids:
        text = np.concatenate(sentences)
        starts = np.flatnonzero(self.vocabulary.starts_word[text])
        budget = math.ceil(len(starts) * self.options.noise_density)
        if not budget:
            return text
        lengths = draw_span_lengths(budget, self.span_lengths, rng)
        spans = lengths[lengths > 0]
        insertions = int((lengths == 0).sum())
        source = self.mask_spans(text, starts, spans, rng)
        return self.insert_masks(source, min(insertions, len(text) - len(source)), rng)

    def mask_spans(self, text: Ids, starts: Ids, lengths: Ids, rng: np.random.Generator) -> Ids:
        """Replace spans of words, at random places, by a mask token each.

        Args:
            text: (tokens,).
            starts: the first token of each word, (words,).
            lengths: number of words of each span, positive, (spans,), at most as many as words.
            rng: random generator of the row.
        """
        words = rng.permutation(len(starts))[: len(lengths)]
        is_random = rng.random(len(lengths)) < self.options.random_token_prob
        text = text.copy()
        text[starts[words]] = self.mask_id
        text[starts[words[is_random]]] = self.random_tokens(int(is_random.sum()), rng)
        bounds = np.append(starts, len(text))
        ends = bounds[np.minimum(words + lengths, len(starts))]
        remains = np.ones(len(text), dtype=bool)
        for start, end in zip(starts[words].tolist(), ends.tolist(), strict=True):
            remains[start + 1 : end] = False
        return text[remains]

    def insert_masks(self, text: Ids, count: int, rng: np.random.Generator) -> Ids:
        """Insert mask tokens at random places of a text, (tokens,)."""
        if not count:
            return text
        positions = rng.permutation(len(text) + count)[:count]
        random_count = math.ceil(count * self.options.random_token_prob)
        result = np.zeros(len(text) + count, dtype=np.int64)
        is_inserted = np.zeros(len(result), dtype=bool)
        is_inserted[positions] = True
        result[positions[random_count:]] = self.mask_id
        result[positions[:random_count]] = self.random_tokens(random_count, rng)
        result[~is_inserted] = text
        return result

    def random_tokens(self, count: int, rng: np.random.Generator) -> Ids:
        """Draw tokens that are not special, (count,)."""
        tokens: Ids = rng.choice(self.vocabulary.ordinary_ids, size=count)
        return tokens


class InfillingAndPermutation(TextInfilling):
    """Predicts the original text of one with shuffled sentences and masked spans."""

    name: ClassVar[str] = "text-infilling+sentence-permutation"
    options_type: ClassVar[type[Options]] = InfillingAndPermutationOptions

    @override
    def corrupt(self, sentences: Sequence[Ids], rng: np.random.Generator) -> Ids:
        order = permuted_order(len(sentences), self.options.permute_sentences, rng)
        return super().corrupt([sentences[index] for index in order], rng)


def permuted_order(count: int, fraction: float, rng: np.random.Generator) -> list[int]:
    """Return the order of sentences, a fraction of them, rounded up, permuted."""
    order = np.arange(count)
    moved = rng.permutation(count)[: math.ceil(count * fraction)]
    order[moved] = moved[rng.permutation(len(moved))]
    return [int(index) for index in order]


def poisson_probabilities(mean: float) -> NDArray[np.float64]:
    """Return the probabilities of 0, 1, ... up to one below ``MIN_PROBABILITY``; they sum to 1."""
    values = [math.exp(-mean)]
    while values[-1] >= MIN_PROBABILITY or len(values) <= mean:
        values.append(values[-1] * mean / len(values))
    probabilities: NDArray[np.float64] = np.array(values) / sum(values)
    return probabilities


def draw_span_lengths(
    budget: int, probabilities: NDArray[np.float64], rng: np.random.Generator
) -> Ids:
    """Draw span lengths, (spans,), int64, some 0, that sum to a budget; the last is cut."""
    lengths = np.zeros(0, dtype=np.int64)
    while lengths.sum() < budget:
        new_lengths: Any = rng.choice(len(probabilities), size=budget, p=probabilities)
        lengths = np.concatenate([lengths, new_lengths])
    last = int(np.searchsorted(lengths.cumsum(), budget))
    lengths = lengths[: last + 1]
    lengths[last] -= lengths.sum() - budget
    return lengths
