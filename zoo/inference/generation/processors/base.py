"""The interface of the built-in rules of generation, which know more of a step than plugins do."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from zoo.overrides import override


class Step(NamedTuple):
    """A step of generation for rows whose prompts have one length."""

    input_ids: Tensor  # (rows, tokens), int64: tokens of the decoder so far, without padding
    # (rows, prompt tokens), int64: the prompt, or the source of an encoder-decoder
    prompt_ids: Tensor
    new_tokens: int  # number of tokens that were generated before
    max_new_tokens: int  # number of tokens after which generation ends

    @property
    def length(self) -> int:
        """Number of tokens of the decoder so far."""
        return self.input_ids.shape[1]


class GenerationRule(ABC):
    """A rule that changes the scores of the next token."""

    @abstractmethod
    def __call__(self, step: Step, scores: Tensor) -> Tensor:
        """Return the new scores, (rows, vocabulary); those given are not changed."""


@dataclass(frozen=True)
class CustomRule(GenerationRule):
    """A ``LogitsProcessor`` of a user or a family."""

    processor: Callable[[Tensor, Tensor], Tensor]  # the function of tokens and scores

    @override
    def __call__(self, step: Step, scores: Tensor) -> Tensor:
        return self.processor(step.input_ids, scores)


def exclude(scores: Tensor, tokens: list[int]) -> Tensor:
    """Return the scores with ``-inf`` for some tokens; ids outside the vocabulary do not count."""
    valid_tokens = [token for token in tokens if token < scores.shape[-1]]
    indices = torch.tensor(valid_tokens, dtype=torch.int64, device=scores.device)
    return scores.index_fill(-1, indices, float("-inf"))


def only(scores: Tensor, tokens: list[int]) -> Tensor:
    """Return scores that allow some tokens, with the score 0, and no others."""
    indices = torch.tensor(tokens, device=scores.device)
    return torch.full_like(scores, float("-inf")).index_fill(-1, indices, 0.0)
