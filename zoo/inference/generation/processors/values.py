"""Rules on the scores as numbers: NaN and infinity, and their sum as probabilities."""

import torch
from torch import Tensor

from zoo.inference.generation.processors.base import GenerationRule, Step
from zoo.overrides import override


class RemoveInvalidValues(GenerationRule):
    """Replaces NaN by 0, and infinity by the largest or lowest number."""

    @override
    def __call__(self, step: Step, scores: Tensor) -> Tensor:
        limits = torch.finfo(scores.dtype)
        return scores.nan_to_num(0.0, posinf=limits.max, neginf=limits.min)


class Renormalize(GenerationRule):
    """Turns scores into log-probabilities."""

    @override
    def __call__(self, step: Step, scores: Tensor) -> Tensor:
        return scores.log_softmax(-1)
