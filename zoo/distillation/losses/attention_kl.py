"""KL divergence of attention probabilities (Wang et al. 2020, arXiv:2002.10957, section 3.1)."""

from typing import TYPE_CHECKING, ClassVar

from zoo.distillation.losses.base import AttentionScoresLoss
from zoo.distillation.outputs import real_tokens
from zoo.overrides import override

if TYPE_CHECKING:
    from torch import Tensor

    from zoo.objectives.base import Batch


class AttentionKL(AttentionScoresLoss):
    """KL(teacher || student) of attention probabilities."""

    name: ClassVar[str] = "attention-kl"
    summary: ClassVar[str] = "divergence of attention probabilities"

    @override
    def count(self, batch: "Batch") -> int:
        # Queries times heads, in one layer.
        return int(real_tokens(batch.tensors).sum()) * self.student.heads

    @override
    @staticmethod
    def distance(student: "Tensor", teacher: "Tensor", pairs: "Tensor") -> "Tensor":
        from zoo.distillation.divergences import attention_divergence

        return attention_divergence(student, teacher, pairs)
