"""Denoising objectives of encoder-decoder models (Raffel et al. 2020, arXiv:1910.10683)."""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from zoo.data.document_stream import Documents
from zoo.data.packing import BudgetFactory
from zoo.errors import UsageError
from zoo.objectives.examples.seq2seq_packing import plan_decoder_length
from zoo.objectives.examples.span_noise import (
    Noise,
    num_noise_spans,
    num_noise_tokens,
    random_spans,
    single_tokens,
    spans_to_sentinels,
)
from zoo.objectives.examples.vocabulary import Ids, TokenizerView
from zoo.objectives.options import Options
from zoo.objectives.seq2seq import SEQ2SEQ_LM, Seq2SeqObjective, Seq2SeqOptions
from zoo.overrides import override

if TYPE_CHECKING:
    from zoo.families.base import Family
    from zoo.families.config import Config


class NoiseOptions(Seq2SeqOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of noise, and ``concat_documents``."""

    noise_density: float = 0.15  # Fraction of the tokens that is noise.

    def __post_init__(self) -> None:
        self.check_fraction("noise_density")


class SpanOptions(NoiseOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of spans of noise."""

    mean_span_length: float = 3.0  # Mean number of tokens per span.

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.mean_span_length >= 1:
            raise ValueError(f"mean_span_length is {self.mean_span_length}, which is less than 1")


def sentinel_ids(vocabulary: TokenizerView) -> Ids:
    """Return the ids of ``<extra_id_0>``, ``<extra_id_1>`` and so on, (sentinels,), int64."""
    ids: list[int] = []
    sentinel_id = vocabulary.tokenizer.token_to_id("<extra_id_0>")
    while sentinel_id is not None:
        ids.append(sentinel_id)
        sentinel_id = vocabulary.tokenizer.token_to_id(f"<extra_id_{len(ids)}>")
    if not ids:
        raise UsageError(
            "the tokenizer has no tokens <extra_id_0>, <extra_id_1>, ... to stand for noise",
            "choose another tokenizer, or train one with `--tokenizer train`",
        )
    return np.array(ids, dtype=np.int64)


class DenoisingObjective(Seq2SeqObjective):
    """Base class: source and target are functions of text and noise (``denoise`` of the code)."""

    # The source is a corrupted text, the target the missing tokens or the original text. Table 3 of
    # the paper has an example of each, tables 4 to 7 compare them; ``span-corruption`` is the best.
    # ``<X>``, ``<Y>`` and ``<Z>`` are the sentinels ``<extra_id_0>``, ``<extra_id_1>`` and
    # ``<extra_id_2>``, in the order of the text; ``<M>`` is also the first sentinel, as in the
    # released code.

    options_type: ClassVar[type[Options]] = NoiseOptions

    def noise(self, tokens: int, rng: np.random.Generator) -> Noise:
        """Draw which tokens of a text are noise, (tokens,), bool; by default single tokens."""
        return single_tokens(tokens, self.options.noise_density, rng)

    @abstractmethod
    def max_lengths(self, tokens: int) -> tuple[int, int] | None:
        """Return the largest lengths of source and target, without special tokens.

        Both must not decrease with the number of tokens. ``None`` means that the text is too long.
        """

    @abstractmethod
    def corrupt(self, text: Ids, noise: Noise, rng: np.random.Generator) -> tuple[Ids, Ids]:
        """Return source and target of a text, (tokens,), for its noise, (tokens,), bool."""

    @override
    def plan_rows(self, documents: Documents) -> tuple[BudgetFactory, int]:
        special_count = sum(map(len, self.special_tokens))
        return plan_decoder_length(self.max_lengths, documents, self.length, special_count)

    @override
    def source_target_pairs(
        self, texts: Sequence[Ids], rng: np.random.Generator
    ) -> Sequence[tuple[Ids, Ids]]:
        """The noise of each text is independent."""
        return [self.corrupt(text, self.noise(len(text), rng), rng) for text in texts]

    needs_sentinels: ClassVar[bool] = False  # Whether sentinel tokens stand for noise.

    @classmethod
    @override
    def unsupported_reason(cls, family: "Family", config: "Config") -> str | None:
        specs = family.new_tokenizers.values()
        if cls.needs_sentinels and specs and not any(spec.sentinels for spec in specs):
            return "its tokenizers have no tokens <extra_id_0>, <extra_id_1>, ..."
        return super().unsupported_reason(family, config)

    @cached_property
    def sentinels(self) -> Ids:
        """Ids of the sentinel tokens, (sentinels,), int64."""
        return sentinel_ids(self.vocabulary)


class ReplaceSpans(DenoisingObjective):
    """Predicts the spans that sentinels replace. Table 3, i.i.d. noise, replace spans; table 5."""

    # Thank you <X> me to your party <Y> week . -> <X> for inviting <Y> last <Z>
    # Adjacent noise tokens form a span. The last sentinel is part of the target if the text does
    # not end in noise. Segments are short enough that the sentinels suffice for any noise.

    name: ClassVar[str] = "replace-spans"
    needs_sentinels: ClassVar[bool] = True

    @override
    def max_lengths(self, tokens: int) -> tuple[int, int] | None:
        noise_tokens = num_noise_tokens(tokens, self.options.noise_density)
        other_tokens = tokens - noise_tokens
        # The numbers of spans are largest where noise and other tokens alternate.
        noise_spans = min(noise_tokens, other_tokens + 1)
        other_spans = min(other_tokens, noise_tokens + 1)
        if max(noise_spans, other_spans) > len(self.sentinels):
            return None
        return other_tokens + noise_spans, noise_tokens + other_spans

    @override
    def corrupt(self, text: Ids, noise: Noise, rng: np.random.Generator) -> tuple[Ids, Ids]:
        return (
            spans_to_sentinels(text, noise, self.sentinels),
            spans_to_sentinels(text, ~noise, self.sentinels),
        )


class SpanCorruption(ReplaceSpans):
    """Predicts random spans that sentinels replace. Table 3, random spans; table 7, length 3."""

    # Thank you <X> to <Y> week . -> <X> for inviting me <Y> your party last <Z>
    # Spans are drawn so that a text ends in noise, and the target without a last sentinel.

    name: ClassVar[str] = "span-corruption"
    options_type: ClassVar[type[Options]] = SpanOptions

    @override
    def max_lengths(self, tokens: int) -> tuple[int, int] | None:
        """The lengths are exact."""
        noise = num_noise_tokens(tokens, self.options.noise_density)
        spans = num_noise_spans(tokens, self.options.noise_density, self.options.mean_span_length)
        if spans > len(self.sentinels):
            return None
        return tokens - noise + spans, noise + max(spans, 1)

    @override
    def noise(self, tokens: int, rng: np.random.Generator) -> Noise:
        return random_spans(tokens, self.options.noise_density, self.options.mean_span_length, rng)


class DropTokens(DenoisingObjective):
    """Predicts dropped tokens. Table 3, i.i.d. noise, drop; table 5, drop corrupted tokens."""

    # Thank you me to your party week . -> for inviting last

    name: ClassVar[str] = "drop-tokens"

    @override
    def max_lengths(self, tokens: int) -> tuple[int, int] | None:
        """The lengths are exact."""
        noise = num_noise_tokens(tokens, self.options.noise_density)
        return tokens - noise, noise

    @override
    def corrupt(self, text: Ids, noise: Noise, rng: np.random.Generator) -> tuple[Ids, Ids]:
        return text[~noise], text[noise]


class MaskTokens(DenoisingObjective):
    """Predicts the original text of masked tokens. Tables 3 and 5, MASS-style.

    (Song et al. 2019, arXiv:1905.02450, without its spans.)

    Thank you <M> <M> me to your party <M> week . -> (original text)
    """

    name: ClassVar[str] = "mask-tokens"
    needs_sentinels: ClassVar[bool] = True

    @property
    @override
    def visible_labels(self) -> Mapping[str, float]:
        return {SEQ2SEQ_LM: 1 - self.options.noise_density}

    @override
    def max_lengths(self, tokens: int) -> tuple[int, int] | None:
        """The lengths are exact."""
        return tokens, tokens

    @override
    def corrupt(self, text: Ids, noise: Noise, rng: np.random.Generator) -> tuple[Ids, Ids]:
        return np.where(noise, self.sentinels[0], text), text


class Deshuffling(DenoisingObjective):
    """Predicts the original order of shuffled tokens. Tables 3 and 4, deshuffling."""

    # party me for your to . last fun you inviting week Thank -> (original text)
    # In the paper's example, "fun" is not a word of the text.

    name: ClassVar[str] = "deshuffling"
    options_type: ClassVar[type[Options]] = Seq2SeqOptions

    @property
    @override
    def visible_labels(self) -> Mapping[str, float]:
        return {SEQ2SEQ_LM: 1.0}

    @override
    def max_lengths(self, tokens: int) -> tuple[int, int] | None:
        """The lengths are exact."""
        return tokens, tokens

    @override
    def noise(self, tokens: int, rng: np.random.Generator) -> Noise:
        """Return a mask of noise everywhere, (tokens,), bool."""
        return np.ones(tokens, dtype=bool)

    @override
    def corrupt(self, text: Ids, noise: Noise, rng: np.random.Generator) -> tuple[Ids, Ids]:
        return rng.permutation(text), text
