"""Self-attention relations of queries, keys or values (Wang et al. 2021, arXiv:2012.15828)."""

import math
from collections.abc import Sequence
from typing import ClassVar, Literal

from torch import Tensor, nn

from zoo.distillation.losses.attention_kl import attention_divergence
from zoo.distillation.losses.base import AttentionLoss, distillation_loss
from zoo.distillation.outputs import ModelOutput, real_tokens
from zoo.errors import UsageError
from zoo.objectives.base import Batch
from zoo.overrides import override

VECTORS = ("queries", "keys", "values")


@distillation_loss("relations")
class Relations(AttentionLoss):
    """KL(teacher || student) of relations: a mean over their kinds, summed over layers."""

    captures: ClassVar[str] = "queries_keys_values"
    relations: tuple[Literal["queries", "keys", "values"], ...]
    relation_heads: int | None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.relation_heads is None:
            self.require_equal_heads(
                f"--set distillation.terms.{self.name}.relation_heads=N splits both into N parts"
            )
        self.heads = self.relation_heads or self.student.heads
        widths = [shape.hidden_size for shape in (self.student, *self.teachers)]
        odd = next((width for width in widths if width % self.heads), None)
        if odd is not None:
            raise UsageError(
                f"terms.{self.name}.relation_heads is {self.heads}, which does not divide the "
                f"width {odd}",
                f"--set distillation.terms.{self.name}.relation_heads=N takes a divisor of "
                f"{math.gcd(*widths)}",
            )

    @override
    def count(self, batch: Batch) -> int:
        # queries times relation heads, in one layer and for one kind of relation
        return int(real_tokens(batch.tensors).sum()) * self.heads

    @override
    def total(
        self, student: ModelOutput, teachers: Sequence[ModelOutput], projection: nn.Module | None
    ) -> Tensor:
        pairs, sums = self.allowed(student.batch), []
        for first, second in self.pairs:
            mine = student.queries_keys_values(first)
            other = teachers[0].queries_keys_values(second)
            for name in self.relations:
                index = VECTORS.index(name)
                scores = [relation_scores(qkv[index], self.heads) for qkv in (mine, other)]
                sums.append(attention_divergence(scores[0], scores[1], pairs))
        return sum(sums[1:], sums[0]) / len(self.relations)


def relation_scores(vectors: Tensor, heads: int) -> Tensor:
    """Return the scaled dot products between tokens, (rows, relation heads, tokens, tokens)."""
    # vectors: queries, keys or values, (rows, attention heads, tokens, head width)
    # attention heads are concatenated and split again, so that models with different numbers of
    # heads can be compared (section 3.1 of the paper)
    rows, _, tokens, _ = vectors.shape
    split = vectors.transpose(1, 2).reshape(rows, tokens, heads, -1).transpose(1, 2)
    scores: Tensor = split @ split.transpose(-1, -2) / split.shape[-1] ** 0.5
    return scores
