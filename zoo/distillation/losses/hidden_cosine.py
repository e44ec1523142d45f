"""Cosine distances of hidden states."""

from torch import Tensor
from torch.nn import functional as F

from zoo.distillation.losses.base import HiddenLoss, distillation_loss
from zoo.overrides import override


@distillation_loss("hidden-cosine")
class HiddenCosine(HiddenLoss):
    """1 - cos(student, teacher) of hidden states."""

    @override
    @staticmethod
    def distance(student: Tensor, teacher: Tensor) -> Tensor:
        return (1 - F.cosine_similarity(student, teacher, dim=-1)).sum()
