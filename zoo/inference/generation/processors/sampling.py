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

from zoo.inference.generation.processors.base import Rule, Step
from zoo.overrides import override

TOP_H_TOKENS = 100  # most likely tokens that top-h considers, as in transformers


@dataclass(frozen=True)
class Temperature(Rule):
    """Divides scores by a temperature."""

    temperature: float

    @override
    def __call__(self, step: Step, scores: Tensor) -> Tensor:
        # the maximum becomes zero, so that a low temperature cannot overflow
        return (scores - scores.amax(-1, keepdim=True)) / self.temperature


@dataclass(frozen=True)
class TopH(Rule):
    """Keeps the most likely tokens up to a fraction of the entropy."""

    top_h: float  # the fraction

    @override
    def __call__(self, step: Step, scores: Tensor) -> Tensor:
        best, tokens = scores.topk(min(TOP_H_TOKENS, scores.shape[-1]))
        entropies = _entropies(best.log_softmax(-1))
        kept = entropies.cumsum(-1) <= self.top_h * entropies.sum(-1, keepdim=True)
        kept[:, 0] = True
        dropped = torch.ones_like(scores, dtype=torch.bool).scatter(-1, tokens, ~kept)
        return scores.masked_fill(dropped, float("-inf"))


@dataclass(frozen=True)
class TopK(Rule):
    """Keeps the most likely tokens, and all that tie with the last of them."""

    top_k: int  # number of tokens
    keep: int = 1  # smallest number of tokens to keep

    @override
    def __call__(self, step: Step, scores: Tensor) -> Tensor:
        least = scores.topk(min(max(self.top_k, self.keep), scores.shape[-1])).values[:, -1:]
        return scores.masked_fill(scores < least, float("-inf"))


@dataclass(frozen=True)
class TopP(Rule):
    """Keeps the smallest set of most likely tokens with a total probability."""

    top_p: float  # the probability
    keep: int = 1  # smallest number of tokens to keep

    @override
    def __call__(self, step: Step, scores: Tensor) -> Tensor:
        ordered, order = scores.softmax(-1).sort(descending=True, stable=True)
        before = ordered.cumsum(-1) - ordered  # total probability of more likely tokens
        is_rare = before >= self.top_p
        is_rare[:, : self.keep] = False
        dropped = torch.zeros_like(is_rare).scatter(-1, order, is_rare)
        return scores.masked_fill(dropped, float("-inf"))


@dataclass(frozen=True)
class MinP(Rule):
    """Drops tokens that are less likely than a fraction of the most likely one's probability."""

    min_p: float  # the fraction
    keep: int = 1  # smallest number of tokens to keep

    @override
    def __call__(self, step: Step, scores: Tensor) -> Tensor:
        probs = scores.softmax(-1)
        least = self.min_p * probs.amax(-1, keepdim=True)
        return _unlikely_excluded(scores, probs, least, self.keep)


@dataclass(frozen=True)
class TypicalP(Rule):
    """Keeps the tokens whose information is nearest to the entropy, up to a total probability."""

    typical_p: float  # the probability
    keep: int = 1  # smallest number of tokens to keep

    @override
    def __call__(self, step: Step, scores: Tensor) -> Tensor:
        log_probs = scores.log_softmax(-1)
        entropy = _entropies(log_probs).sum(-1, keepdim=True)
        distances, order = (-log_probs - entropy).abs().sort()
        mass = log_probs.exp().gather(-1, order).cumsum(-1)
        last = (mass < self.typical_p).sum(-1, keepdim=True).clamp(max=scores.shape[-1] - 1)
        dropped = distances > distances.gather(-1, last)
        dropped[:, : self.keep] = False
        dropped = torch.zeros_like(dropped).scatter(-1, order, dropped)
        return scores.masked_fill(dropped, float("-inf"))


@dataclass(frozen=True)
class EpsilonCutoff(Rule):
    """Drops tokens below a probability."""

    epsilon: float  # the probability
    keep: int = 1  # smallest number of tokens to keep

    @override
    def __call__(self, step: Step, scores: Tensor) -> Tensor:
        probs = scores.softmax(-1)
        return _unlikely_excluded(scores, probs, self.epsilon, self.keep)


@dataclass(frozen=True)
class EtaCutoff(Rule):
    """Drops tokens below a probability that depends on the entropy."""

    epsilon: float  # the probability that is the upper bound
    keep: int = 1  # smallest number of tokens to keep

    @override
    def __call__(self, step: Step, scores: Tensor) -> Tensor:
        entropy = _entropies(scores.log_softmax(-1)).sum(-1, keepdim=True)
        eta = (math.sqrt(self.epsilon) * (-entropy).exp()).clamp(max=self.epsilon)
        return _unlikely_excluded(scores, scores.softmax(-1), eta, self.keep)


def _unlikely_excluded(scores: Tensor, probs: Tensor, least: Tensor | float, keep: int) -> Tensor:
    """Exclude tokens below a probability, (rows, 1) or one for all, that are not the best ones."""
    kept = scores.topk(min(keep, scores.shape[-1])).values[:, -1:]
    return scores.masked_fill((probs < least) & (scores < kept), float("-inf"))


def _entropies(log_probs: Tensor) -> Tensor:
    """Return ``-p log p`` of each token, 0 for tokens that are excluded."""
    entropies: Tensor = torch.special.entr(log_probs.exp())
    return entropies
