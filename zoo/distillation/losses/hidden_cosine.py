"""Cosine distances of hidden states."""

from typing import TYPE_CHECKING, ClassVar

from zoo.distillation.losses.base import HiddenLoss
from zoo.overrides import override

if TYPE_CHECKING:
    from torch import Tensor


class HiddenCosine(HiddenLoss):
    """1 - cos(student, teacher) of hidden states."""

    name: ClassVar[str] = "hidden-cosine"
    summary: ClassVar[str] = "cosine distances of hidden states"

    @override
    @staticmethod
    def distance(student: "Tensor", teacher: "Tensor") -> "Tensor":
        from torch.nn import functional as F

        return (1 - F.cosine_similarity(student, teacher, dim=-1)).sum()
