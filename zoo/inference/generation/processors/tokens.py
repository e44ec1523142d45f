"""Rules that force, suppress or favour tokens and sequences of tokens."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from zoo.inference.generation.processors.base import GenerationRule, Step, exclude, only
from zoo.overrides import override

Biases = Sequence[tuple[Sequence[int], float]]


@dataclass(frozen=True)
class SequenceBias(GenerationRule):
    """Adds a bias to the score of a token that would end a sequence."""

    biases: Biases

    @override
    def __call__(self, step: Step, scores: Tensor) -> Tensor:
        added = torch.zeros_like(scores)
        for (*prefix, last_token), bias in self.biases:
            if len(prefix) > step.length:
                continue
            ends = step.input_ids[:, step.length - len(prefix) :]
            matches = (ends == torch.tensor(prefix, device=ends.device)).all(-1)
            # This is not a product, because an infinite bias times 0 is NaN.
            added[:, last_token] += torch.where(matches, bias, 0.0).to(added.dtype)
        return scores + added


def bad_words(words: Sequence[Sequence[int]], eos_token_ids: Sequence[int]) -> SequenceBias:
    """Return the rule that excludes words; an end-of-sequence token is not one of them."""
    ends = [(token,) for token in eos_token_ids]
    return SequenceBias([(word, float("-inf")) for word in words if tuple(word) not in ends])


@dataclass(frozen=True)
class SuppressTokens(GenerationRule):
    """Excludes tokens."""

    tokens: Sequence[int]

    @override
    def __call__(self, step: Step, scores: Tensor) -> Tensor:
        return exclude(scores, [*self.tokens])


@dataclass(frozen=True)
class BeginSuppressTokens(GenerationRule):
    """Excludes tokens at the beginning: as the first token, or as the one after a forced first."""

    tokens: Sequence[int]
    forced_first: bool  # whether the first token of a decoder is forced

    @override
    def __call__(self, step: Step, scores: Tensor) -> Tensor:
        is_forced = self.forced_first and step.length - step.new_tokens <= 1
        return exclude(scores, [*self.tokens]) if step.new_tokens == is_forced else scores


@dataclass(frozen=True)
class ForcedFirstToken(GenerationRule):
    """Forces the token after the first one of the decoder: ``forced_bos_token_id``."""

    token: int

    @override
    def __call__(self, step: Step, scores: Tensor) -> Tensor:
        return only(scores, [self.token]) if step.length == 1 else scores


@dataclass(frozen=True)
class ForcedLastToken(GenerationRule):
    """Forces the last possible token to be one of several: ``forced_eos_token_id``."""

    tokens: Sequence[int]

    @override
    def __call__(self, step: Step, scores: Tensor) -> Tensor:
        is_last = step.new_tokens == step.max_new_tokens - 1
        return only(scores, [*self.tokens]) if is_last else scores
