"""Base class of optimizers that a run selects by name. Importing it imports no torch."""

from abc import abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec

if TYPE_CHECKING:
    import torch

    from zoo.families.recipe import OptimizerConfig


class OptimizerMethod(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An optimizer of a run, whose fields are its own settings, ``optimizer.args``.

    Settings that several optimizers have, such as the learning rate, are in ``OptimizerConfig``.
    ``__post_init__`` may raise ``ValueError``.

    Attributes:
        name: value of ``optimizer.name``.
        has_weight_decay: whether a weight decay above 0 is accepted.
    """

    name: ClassVar[str]
    has_weight_decay: ClassVar[bool] = True

    @property
    def takes_row_gradients(self) -> bool:
        """Whether ``make`` takes gradients of some rows of a matrix on a CPU, as sparse tensors."""
        return False

    @abstractmethod
    def make(
        self, groups: Sequence[dict[str, Any]], config: "OptimizerConfig"
    ) -> "torch.optim.Optimizer":
        """Return the optimizer.

        Args:
            groups: parameter groups. Next to ``params``, each has ``scale``, the factor of its
                learning rate, and ``decayed``, whether weight decay applies to it. Parameters may
                be ``DTensor``.
            config: the settings of the run.
        """

    def set_hyperparams(
        self, optimizer: "torch.optim.Optimizer", config: "OptimizerConfig", lr: float, step: int
    ) -> None:
        """Set what the next ``optimizer.step()`` reads of its parameter groups.

        Args:
            optimizer: the optimizer that ``make`` returned.
            config: the settings of the run.
            lr: the learning rate of the schedule.
            step: the number of updates that the optimizer has made.
        """
        for group in optimizer.param_groups:
            group["lr"] = lr * group["scale"]
            group["weight_decay"] = config.weight_decay if group["decayed"] else 0.0
