"""Rules of sampling, which exclude unlikely tokens."""

# Holtzman, Buys, Du, Forbes and Choi 2020, arXiv:1904.09751 (top-p, and in section 5 top-k and
# temperature); Nguyen et al. 2024, arXiv:2407.01082 (min-p); Meister et al. 2022, arXiv:2202.00666
# (typical-p); Hewitt, Manning and Liang 2022, arXiv:2210.15191 (epsilon and eta); Potraghloo et al.
# 2025, arXiv:2509.02510 (top-h). All keep the most likely token; in a beam search, ``keep`` of
# them, so that beams go on where some end.

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from zoo.inference.generation.processors.base import GenerationRule, Step
from zoo.overrides import override

TOP_H_TOKENS = 100  # most likely tokens that top-h considers, as in transformers


@dataclass(frozen=True)
class Temperature(GenerationRule):
    """Divides scores by a temperature."""

    temperature: float

    @override
    def __call__(self, step: Step, scores: Tensor) -> Tensor:
        # The maximum becomes zero, so that a low temperature cannot overflow.
        return (scores - scores.amax(-1, keepdim=True)) / self.temperature


@dataclass(frozen=True)
class TopH(GenerationRule):
    """Keeps the most likely tokens up to a fraction of the entropy."""

    top_h: float  # the fraction

    @override
    def __call__(self, step: Step, scores: Tensor) -> Tensor:
        best, tokens = scores.topk(min(TOP_H_TOKENS, scores.shape[-1]))
        entropies = _entropies(best.log_softmax(-1))
        is_kept = entropies.cumsum(-1) <= self.top_h * entropies.sum(-1, keepdim=True)
        is_kept[:, 0] = True
        is_dropped = torch.ones_like(scores, dtype=torch.bool).scatter(-1, tokens, ~is_kept)
        return scores.masked_fill(is_dropped, float("-inf"))


@dataclass(frozen=True)
class TopK(GenerationRule):
    """Keeps the most likely tokens, and all that tie with the last of them."""

    top_k: int  # number of tokens
    keep: int = 1  # smallest number of tokens to keep

    @override
    def __call__(self, step: Step, scores: Tensor) -> Tensor:
        count = min(max(self.top_k, self.keep), scores.shape[-1])
        lowest_score = scores.topk(count).values[:, -1:]
        return scores.masked_fill(scores < lowest_score, float("-inf"))


@dataclass(frozen=True)
class TopP(GenerationRule):
    """Keeps the smallest set of most likely tokens with a total probability."""

    top_p: float  # the probability
    keep: int = 1  # smallest number of tokens to keep

    @override
    def __call__(self, step: Step, scores: Tensor) -> Tensor:
        probs, order = scores.softmax(-1).sort(descending=True, stable=True)
        more_likely = probs.cumsum(-1) - probs  # total probability of more likely tokens
        is_rare = more_likely >= self.top_p
        is_rare[:, : self.keep] = False
        is_dropped = torch.zeros_like(is_rare).scatter(-1, order, is_rare)
        return scores.masked_fill(is_dropped, float("-inf"))


@dataclass(frozen=True)
class MinP(GenerationRule):
    """Drops tokens that are less likely than a fraction of the most likely one's probability."""

    min_p: float  # the fraction
    keep: int = 1  # smallest number of tokens to keep

    @override
    def __call__(self, step: Step, scores: Tensor) -> Tensor:
        probs = scores.softmax(-1)
        threshold = self.min_p * probs.amax(-1, keepdim=True)
        return _exclude_unlikely(scores, probs, threshold, self.keep)


@dataclass(frozen=True)
class TypicalP(GenerationRule):
    """Keeps the tokens whose information is nearest to the entropy, up to a total probability."""

    typical_p: float  # the probability
    keep: int = 1  # smallest number of tokens to keep

    @override
    def __call__(self, step: Step, scores: Tensor) -> Tensor:
        log_probs = scores.log_softmax(-1)
        entropy = _entropies(log_probs).sum(-1, keepdim=True)
        distances, order = (-log_probs - entropy).abs().sort()
        mass = log_probs.exp().gather(-1, order).cumsum(-1)
        last_rank = (mass < self.typical_p).sum(-1, keepdim=True).clamp(max=scores.shape[-1] - 1)
        is_untypical = distances > distances.gather(-1, last_rank)
        is_untypical[:, : self.keep] = False
        is_dropped = torch.zeros_like(is_untypical).scatter(-1, order, is_untypical)
        return scores.masked_fill(is_dropped, float("-inf"))


@dataclass(frozen=True)
class EpsilonCutoff(GenerationRule):
    """Drops tokens below a probability."""

    epsilon: float  # the probability
    keep: int = 1  # smallest number of tokens to keep

    @override
    def __call__(self, step: Step, scores: Tensor) -> Tensor:
        probs = scores.softmax(-1)
        return _exclude_unlikely(scores, probs, self.epsilon, self.keep)


@dataclass(frozen=True)
class EtaCutoff(GenerationRule):
    """Drops tokens below a probability that depends on the entropy."""

    epsilon: float  # the probability that is the upper bound
    keep: int = 1  # smallest number of tokens to keep

    @override
    def __call__(self, step: Step, scores: Tensor) -> Tensor:
        entropy = _entropies(scores.log_softmax(-1)).sum(-1, keepdim=True)
        eta = (math.sqrt(self.epsilon) * (-entropy).exp()).clamp(max=self.epsilon)
        return _exclude_unlikely(scores, scores.softmax(-1), eta, self.keep)


def _exclude_unlikely(
    scores: Tensor, probs: Tensor, threshold: Tensor | float, keep: int
) -> Tensor:
    """Exclude tokens below a probability, (rows, 1) or one for all, that are not the best ones."""
    lowest_kept = scores.topk(min(keep, scores.shape[-1])).values[:, -1:]
    is_dropped = (probs < threshold) & (scores < lowest_kept)
    return scores.masked_fill(is_dropped, float("-inf"))


def _entropies(log_probs: Tensor) -> Tensor:
    """Return ``-p log p`` of each token, 0 for tokens that are excluded."""
    entropies: Tensor = torch.special.entr(log_probs.exp())
    return entropies
