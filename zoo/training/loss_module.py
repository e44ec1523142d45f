"""The model and its objective as one module, which DDP, FSDP and ``torch.compile`` wrap."""

from collections.abc import Mapping

from torch import Tensor, nn

from zoo.errors import VerificationError
from zoo.objectives.base import LossOutput, TrainingObjective
from zoo.plugins.attribution import third_party
from zoo.plugins.loading import broken


class LossModule(nn.Module):
    """Runs the model on a batch and returns the loss, so that wrappers see both."""

    def __init__(self, objective: TrainingObjective, model: nn.Module) -> None:
        super().__init__()
        self.objective = objective
        self.model = model

    def forward(self, tensors: Mapping[str, Tensor]) -> LossOutput:
        """Return the loss terms and metrics of a batch's tensors."""
        return self.objective.compute_loss(self.model, tensors)


def require_terms(objective: TrainingObjective, output: LossOutput) -> None:
    """Check that a loss has all terms that its objective weights.

    Raises:
        PluginError: the objective of a plugin returns other terms.
        VerificationError: a built-in one does.
    """
    missing_terms = [name for name in objective.loss_weights if name not in output.sums]
    if not missing_terms:
        return
    message = (
        f"the objective {objective.name} has loss_weights for {', '.join(missing_terms)}, and its "
        f"loss returns {', '.join(output.sums) or 'no term'}"
    )
    plugin = third_party(objective)
    if plugin is None:
        raise VerificationError(message)
    raise broken(plugin, message)
