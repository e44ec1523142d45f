"""An optimizer."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from zoo.families.recipe import OptimizerConfig
from zoo.training.optim.base import OptimizerMethod

if TYPE_CHECKING:
    import torch


class Momentum(OptimizerMethod, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Gradient descent with momentum."""

    name: ClassVar[str] = "momentum"
    momentum: float = 0.9

    def make(
        self, groups: Sequence[dict[str, Any]], config: OptimizerConfig
    ) -> "torch.optim.Optimizer":
        """Return torch's optimizer."""
        import torch

        return torch.optim.SGD(groups, lr=config.learning_rate, momentum=self.momentum)
