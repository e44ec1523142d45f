"""Rules against repetition, and against repetition of the source."""

# Keskar et al. 2019, arXiv:1909.05858, section 4.1 (the penalty); Paulus, Xiong and Socher 2017,
# arXiv:1705.04304, section 2.5 (n-grams that occur once).

from dataclasses import dataclass

import torch
from torch import Tensor

from zoo.inference.generation.processors.base import GenerationRule, Step
from zoo.overrides import override


@dataclass(frozen=True)
class RepetitionPenalty(GenerationRule):
    """Divides positive scores of tokens that occurred by a penalty; multiplies negative ones."""

    penalty: float  # the penalty; over 1 against repetition

    @override
    def __call__(self, step: Step, scores: Tensor) -> Tensor:
        return _penalized(scores, step.input_ids, self.penalty)


@dataclass(frozen=True)
class EncoderRepetitionPenalty(GenerationRule):
    """The inverse of ``RepetitionPenalty`` for tokens of the prompt or source."""

    penalty: float  # the penalty; over 1 in favour of these tokens

    @override
    def __call__(self, step: Step, scores: Tensor) -> Tensor:
        return _penalized(scores, step.prompt_ids, 1 / self.penalty)


@dataclass(frozen=True)
class NoRepeatNgram(GenerationRule):
    """Excludes tokens that would end an n-gram that occurred."""

    size: int  # number of tokens of an n-gram

    @override
    def __call__(self, step: Step, scores: Tensor) -> Tensor:
        return _without_ngrams(scores, step.input_ids, step.input_ids, self.size)


@dataclass(frozen=True)
class EncoderNoRepeatNgram(GenerationRule):
    """Excludes tokens that would end an n-gram of the prompt or source."""

    size: int  # number of tokens of an n-gram

    @override
    def __call__(self, step: Step, scores: Tensor) -> Tensor:
        return _without_ngrams(scores, step.prompt_ids, step.input_ids, self.size)


def _penalized(scores: Tensor, tokens: Tensor, penalty: float) -> Tensor:
    token_scores = scores.gather(1, tokens)
    return scores.scatter(
        1, tokens, torch.where(token_scores < 0, token_scores * penalty, token_scores / penalty)
    )


def _without_ngrams(scores: Tensor, text: Tensor, tokens: Tensor, size: int) -> Tensor:
    """Exclude the tokens that follow the last ``size - 1`` tokens somewhere in a text."""
    start = tokens.shape[1] + 1 - size
    if text.shape[1] < size or start < 0:
        return scores
    ngrams = text.unfold(1, size, 1)  # (rows, n-grams, size)
    matches = (ngrams[..., :-1] == tokens[:, None, start:]).all(-1)
    rows, places = matches.nonzero(as_tuple=True)
    excluded = torch.zeros_like(scores, dtype=torch.bool)
    excluded[rows, ngrams[rows, places, -1]] = True
    return scores.masked_fill(excluded, float("-inf"))
