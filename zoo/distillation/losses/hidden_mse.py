"""Squared differences of hidden states."""

from torch import Tensor

from zoo.distillation.losses.base import HiddenLoss, Reduction, distillation_loss, squared_error
from zoo.objectives.base import Batch
from zoo.overrides import override


@distillation_loss("hidden-mse")
class HiddenMSE(HiddenLoss):
    """Squared differences of hidden states."""

    reduction: Reduction

    @override
    def count(self, batch: Batch) -> int:
        width = self.teachers[0].hidden_size if self.reduction == "elements" else 1
        return super().count(batch) * width

    @override
    @staticmethod
    def distance(student: Tensor, teacher: Tensor) -> Tensor:
        return squared_error(student, teacher)
