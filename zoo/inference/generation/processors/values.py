"""Rules on the scores as numbers: NaN and infinity, and their sum as probabilities."""

import torch
from torch import Tensor

from zoo.inference.generation.processors.base import Rule, Step


class RemoveInvalidValues(Rule):
    """Replaces NaN by 0, and infinity by the largest or lowest number."""

    def __call__(self, step: Step, scores: Tensor) -> Tensor:
        """See ``Rule``."""
        limits = torch.finfo(scores.dtype)
        return scores.nan_to_num(0.0, posinf=limits.max, neginf=limits.min)


class Renormalize(Rule):
    """Turns scores into log-probabilities."""

    def __call__(self, step: Step, scores: Tensor) -> Tensor:
        """See ``Rule``."""
        return scores.log_softmax(-1)
