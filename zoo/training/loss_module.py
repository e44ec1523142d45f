"""An objective and what it teaches, as one module: what is wrapped for devices and compilers."""

from collections.abc import Mapping

from torch import Tensor, nn

from zoo.objectives.base import LossOutput, Objective


class LossModule(nn.Module):
    """One forward pass is one batch compared with what is right.

    Args:
        objective: says how.
        model: what the objective built.
    """

    def __init__(self, objective: Objective, model: nn.Module) -> None:
        super().__init__()
        self.objective, self.model = objective, model

    def forward(self, tensors: Mapping[str, Tensor]) -> LossOutput:
        """Return the sums of the loss terms, and metrics; see ``Objective.loss``."""
        return self.objective.compute_loss(self.model, tensors)
