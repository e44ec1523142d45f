"""Squared differences of normalized hidden states of first tokens (Sun et al. 2019, 1908.09355)."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

from zoo.distillation.losses.base import squared_error
from zoo.distillation.losses.hidden_mse import HiddenMSE
from zoo.distillation.outputs import first_tokens
from zoo.overrides import override

if TYPE_CHECKING:
    from torch import Tensor

    from zoo.objectives.base import Batch


class FirstTokenMSE(HiddenMSE):
    """Squared differences of the first tokens' hidden states, normalized to unit length."""

    name: ClassVar[str] = "first-token-mse"
    summary: ClassVar[str] = "squared differences of normalized states of first tokens"

    @override
    def tokens(self, batch: "Mapping[str, Tensor]") -> "Tensor":
        return first_tokens(batch)

    @override
    def count(self, batch: "Batch") -> int:
        # A mean over layers, as in the released code.
        return super().count(batch) * len(self.pairs)

    @override
    @staticmethod
    def distance(student: "Tensor", teacher: "Tensor") -> "Tensor":
        from torch.nn import functional as F

        return squared_error(F.normalize(student, dim=-1), F.normalize(teacher, dim=-1))
