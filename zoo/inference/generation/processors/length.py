"""Rules on the length of what is generated; they change the scores of end-of-sequence tokens."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from zoo.inference.generation.processors.base import GenerationRule, Step, exclude
from zoo.overrides import override


@dataclass(frozen=True)
class MinLength(GenerationRule):
    """Excludes the end below a number of tokens."""

    min_length: int  # number of tokens of the decoder, prompt included
    min_new_tokens: int
    eos_token_ids: Sequence[int]  # end-of-sequence tokens

    @override
    def __call__(self, step: Step, scores: Tensor) -> Tensor:
        is_short = step.length < self.min_length or step.new_tokens < self.min_new_tokens
        return exclude(scores, [*self.eos_token_ids]) if is_short else scores


@dataclass(frozen=True)
class ExponentialDecay(GenerationRule):
    """Raises the score of the end exponentially after a number of new tokens."""

    start: int  # number of new tokens after which the score rises
    factor: float  # base of the exponential
    eos_token_ids: Sequence[int]  # end-of-sequence tokens

    @override
    def __call__(self, step: Step, scores: Tensor) -> Tensor:
        extra_tokens = step.new_tokens - self.start
        if extra_tokens <= 0:
            return scores
        ends = torch.tensor([*self.eos_token_ids], device=scores.device)
        end_scores = scores[:, ends]
        raised = end_scores + end_scores.abs() * (self.factor**extra_tokens - 1)
        return scores.index_copy(1, ends, torch.where(end_scores.isfinite(), raised, end_scores))
