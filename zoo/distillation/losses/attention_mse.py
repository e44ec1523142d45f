"""Squared differences of attention scores before the softmax."""

from typing import TYPE_CHECKING, ClassVar

from zoo.distillation.losses.base import AttentionScoresLoss, squared_error
from zoo.overrides import override

if TYPE_CHECKING:
    from torch import Tensor

    from zoo.objectives.base import Batch


class AttentionMSE(AttentionScoresLoss):
    """Squared differences of attention scores."""

    name: ClassVar[str] = "attention-mse"
    summary: ClassVar[str] = "squared differences of attention scores"

    @override
    def count(self, batch: "Batch") -> int:
        # Pairs of tokens times heads, in one layer.
        return int(self.allowed(batch.tensors).sum()) * self.student.heads

    @override
    @staticmethod
    def distance(student: "Tensor", teacher: "Tensor", pairs: "Tensor") -> "Tensor":
        excluded = ~pairs
        return squared_error(student.masked_fill(excluded, 0), teacher.masked_fill(excluded, 0))
