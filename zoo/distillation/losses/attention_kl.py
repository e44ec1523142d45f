"""KL divergence of attention probabilities (Wang et al. 2020, arXiv:2002.10957, section 3.1)."""

from typing import ClassVar

from torch import Tensor
from torch.nn import functional as F

from zoo.distillation.logits import as_loss, lowest
from zoo.distillation.losses.base import AttentionScoresLoss
from zoo.distillation.outputs import real_tokens
from zoo.objectives.base import Batch
from zoo.overrides import override


class AttentionKL(AttentionScoresLoss):
    """KL(teacher || student) of attention probabilities."""

    name: ClassVar[str] = "attention-kl"
    summary: ClassVar[str] = "divergence of attention probabilities"

    @override
    def count(self, batch: Batch) -> int:
        # Queries times heads, in one layer.
        return int(real_tokens(batch.tensors).sum()) * self.student.heads

    @override
    @staticmethod
    def distance(student: Tensor, teacher: Tensor, pairs: Tensor) -> Tensor:
        return attention_divergence(student, teacher, pairs)


def attention_divergence(student: Tensor, teacher: Tensor, pairs: Tensor) -> Tensor:
    """Return the sum over queries and heads of KL(teacher || student) of their attention."""
    # student: scores before the softmax, (rows, heads, tokens, tokens); pairs: which keys each
    # query may attend to, (rows, 1, tokens, tokens), bool
    queries = pairs.any(-1, keepdim=True)  # others are padding, and do not count
    # the mask is never derived from values: a low score is not necessarily padding
    predicted, target = (
        scores.masked_fill(~pairs, lowest(scores.dtype)).log_softmax(-1)
        for scores in (as_loss(student, student), as_loss(teacher, teacher))
    )
    divergence = F.kl_div(predicted, target, reduction="none", log_target=True)
    return divergence.masked_fill(~queries, 0).sum()
