"""Rules of generation: one file a group of them, and their order."""

from collections.abc import Callable, Sequence

from torch import Tensor

from zoo.inference.generation.config import GenerationConfig, token_ids
from zoo.inference.generation.processors.base import CustomRule, GenerationRule
from zoo.inference.generation.processors.length import ExponentialDecay, MinLength
from zoo.inference.generation.processors.repetition import (
    EncoderNoRepeatNgram,
    EncoderRepetitionPenalty,
    NoRepeatNgram,
    RepetitionPenalty,
)
from zoo.inference.generation.processors.sampling import (
    EpsilonCutoff,
    EtaCutoff,
    MinP,
    Temperature,
    TopH,
    TopK,
    TopP,
    TypicalP,
)
from zoo.inference.generation.processors.tokens import (
    BeginSuppressTokens,
    ForcedFirstToken,
    ForcedLastToken,
    SequenceBias,
    SuppressTokens,
    bad_words,
)
from zoo.inference.generation.processors.values import RemoveInvalidValues, Renormalize

Processor = Callable[[Tensor, Tensor], Tensor]


def make_rules(
    settings: GenerationConfig, eos_token_ids: Sequence[int], custom: Sequence[Processor] = ()
) -> list[GenerationRule]:
    """Return the rules of some settings, in the order in which they apply.

    Order and formulas follow ``_get_logits_processor`` in transformers 5, so that both generate
    the same tokens.
    """
    repetition: list[GenerationRule] = []
    if settings.sequence_bias is not None:
        repetition.append(SequenceBias(settings.sequence_bias))
    if settings.encoder_repetition_penalty != 1:
        repetition.append(EncoderRepetitionPenalty(settings.encoder_repetition_penalty))
    if settings.repetition_penalty != 1:
        repetition.append(RepetitionPenalty(settings.repetition_penalty))
    if settings.no_repeat_ngram_size:
        repetition.append(NoRepeatNgram(settings.no_repeat_ngram_size))
    if settings.encoder_no_repeat_ngram_size:
        repetition.append(EncoderNoRepeatNgram(settings.encoder_no_repeat_ngram_size))
    rules = [
        *repetition,
        *_token_rules(settings, eos_token_ids),
        *map(CustomRule, custom),
        *(_sampling_rules(settings, len(eos_token_ids)) if settings.samples else ()),
    ]
    return [*rules, Renormalize()] if settings.renormalize_logits else rules


def _token_rules(settings: GenerationConfig, eos_token_ids: Sequence[int]) -> list[GenerationRule]:
    rules: list[GenerationRule] = []
    if settings.bad_words_ids is not None:
        rules.append(bad_words(settings.bad_words_ids, eos_token_ids))
    if eos_token_ids and (settings.min_length or settings.min_new_tokens):
        least = 0 if settings.min_new_tokens else settings.min_length  # which it replaces
        rules.append(MinLength(least, settings.min_new_tokens, eos_token_ids))
    if settings.forced_bos_token_id is not None:
        rules.append(ForcedFirstToken(settings.forced_bos_token_id))
    if settings.forced_eos_token_id is not None:
        rules.append(ForcedLastToken(token_ids(settings.forced_eos_token_id)))
    if settings.remove_invalid_values:
        rules.append(RemoveInvalidValues())
    if eos_token_ids and settings.exponential_decay_length_penalty is not None:
        rules.append(ExponentialDecay(*settings.exponential_decay_length_penalty, eos_token_ids))
    if settings.suppress_tokens is not None:
        rules.append(SuppressTokens(settings.suppress_tokens))
    if settings.begin_suppress_tokens is not None:
        is_forced = settings.forced_bos_token_id is not None
        rules.append(BeginSuppressTokens(settings.begin_suppress_tokens, is_forced))
    return rules


def _sampling_rules(settings: GenerationConfig, num_eos_tokens: int) -> list[GenerationRule]:
    keep = max(2, 1 + num_eos_tokens) if settings.num_beams > 1 else 1
    rules: list[GenerationRule] = []
    if settings.temperature not in (None, 1):
        rules.append(Temperature(settings.temperature))
    if settings.top_h is not None:
        rules.append(TopH(settings.top_h))
    if settings.top_k is not None:
        rules.append(TopK(settings.top_k, keep))
    if settings.top_p is not None and settings.top_p < 1:
        rules.append(TopP(settings.top_p, keep))
    if settings.min_p is not None:
        rules.append(MinP(settings.min_p, keep))
    if settings.typical_p is not None and settings.typical_p < 1:
        rules.append(TypicalP(settings.typical_p, keep))
    if settings.epsilon_cutoff is not None and 0 < settings.epsilon_cutoff < 1:
        rules.append(EpsilonCutoff(settings.epsilon_cutoff, keep))
    if settings.eta_cutoff is not None and 0 < settings.eta_cutoff < 1:
        rules.append(EtaCutoff(settings.eta_cutoff, keep))
    return rules
