"""The model and its objective as one module, which DDP, FSDP and ``torch.compile`` wrap."""

from collections.abc import Mapping

from torch import Tensor, nn

from zoo.objectives.base import LossOutput, TrainingObjective


class LossModule(nn.Module):
    """Runs the model on a batch and returns the loss, so that wrappers see both."""

    def __init__(self, objective: TrainingObjective, model: nn.Module) -> None:
        super().__init__()
        self.objective, self.model = objective, model

    def forward(self, tensors: Mapping[str, Tensor]) -> LossOutput:
        """Return the loss terms and metrics of a batch's tensors."""
        return self.objective.compute_loss(self.model, tensors)
