"""Squared differences of hidden states."""

from typing import TYPE_CHECKING, ClassVar

from zoo.distillation.losses.base import (
    HiddenLoss,
    HiddenSettings,
    LossSettings,
    Reduction,
    squared_error,
)
from zoo.overrides import override

if TYPE_CHECKING:
    from torch import Tensor

    from zoo.objectives.base import Batch


class HiddenErrorSettings(HiddenSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of squared errors of hidden states."""

    # Mean over ``rows`` (torch's ``batchmean``), or over all ``elements`` (torch's ``mean``).
    reduction: Reduction = "rows"


class HiddenMSE(HiddenLoss):
    """Squared differences of hidden states."""

    name: ClassVar[str] = "hidden-mse"
    summary: ClassVar[str] = "squared differences of hidden states"
    settings_type: ClassVar[type[LossSettings]] = HiddenErrorSettings
    settings: HiddenErrorSettings

    @override
    def count(self, batch: "Batch") -> int:
        tokens = super().count(batch)
        if self.settings.reduction == "elements":
            return tokens * self.teachers[0].hidden_size
        return tokens

    @override
    @staticmethod
    def distance(student: "Tensor", teacher: "Tensor") -> "Tensor":
        return squared_error(student, teacher)
