"""Squared differences of attention scores before the softmax."""

from torch import Tensor

from zoo.distillation.losses.base import AttentionScoresLoss, distillation_loss, squared_error
from zoo.objectives.base import Batch
from zoo.overrides import override


@distillation_loss("attention-mse")
class AttentionMSE(AttentionScoresLoss):
    """Squared differences of attention scores."""

    @override
    def count(self, batch: Batch) -> int:
        # pairs of tokens times heads in one layer
        return int(self.allowed(batch.tensors).sum()) * self.student.heads

    @override
    @staticmethod
    def distance(student: Tensor, teacher: Tensor, pairs: Tensor) -> Tensor:
        excluded = ~pairs
        return squared_error(student.masked_fill(excluded, 0), teacher.masked_fill(excluded, 0))
