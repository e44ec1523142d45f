"""Self-attention relations of queries, keys or values (Wang et al. 2021, arXiv:2012.15828)."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar, Literal

import msgspec

from zoo.distillation.losses.base import AttentionLoss, LayerSettings, LossSettings
from zoo.distillation.outputs import ModelOutput, real_tokens
from zoo.errors import UsageError
from zoo.overrides import override

if TYPE_CHECKING:
    from torch import Tensor, nn

    from zoo.objectives.base import Batch

VECTORS = ("queries", "keys", "values")


class RelationSettings(LayerSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of ``relations``."""

    # Which vectors are related to each other.
    relations: tuple[Literal["queries", "keys", "values"], ...] = ("queries", "keys", "values")
    # Number of parts into which the vectors of all heads together are split; ``None`` for the
    # number of heads.
    relation_heads: int | None = None

    def __post_init__(self) -> None:
        if self.relation_heads is not None and self.relation_heads < 1:
            raise ValueError(f"relation_heads is {self.relation_heads}, which is not positive")
        if not self.relations:
            raise ValueError("relations is empty")


class Relations(AttentionLoss):
    """KL(teacher || student) of relations: a mean over their kinds, summed over layers."""

    name: ClassVar[str] = "relations"
    summary: ClassVar[str] = "divergence of relations between queries, keys or values"
    captures: ClassVar[str] = "queries_keys_values"
    settings_type: ClassVar[type[LossSettings]] = RelationSettings
    settings: RelationSettings

    @override
    @classmethod
    def settings_for_widths(cls, settings: LossSettings, widths: Sequence[int]) -> LossSettings:
        """The next smaller number of relation heads that divides all widths."""
        assert isinstance(settings, RelationSettings), "settings_type is it"
        published = settings.relation_heads
        divisor = math.gcd(*widths)
        if published is None or divisor % published == 0:
            return settings
        heads = max(number for number in range(1, published) if divisor % number == 0)
        return msgspec.structs.replace(settings, relation_heads=heads)

    def __post_init__(self) -> None:
        super().__post_init__()
        option = f"distillation.terms.{self.term_name}.relation_heads"
        if self.settings.relation_heads is None:
            self.require_equal_heads(f"--set {option}=N splits both into N parts")
        self.heads = self.settings.relation_heads or self.student.heads
        widths = [shape.hidden_size for shape in (self.student, *self.teachers)]
        for width in widths:
            if width % self.heads:
                raise UsageError(
                    f"terms.{self.term_name}.relation_heads is {self.heads}, which does not divide "
                    f"the width {width}",
                    f"--set {option}=N takes a divisor of {math.gcd(*widths)}",
                )

    @override
    def count(self, batch: "Batch") -> int:
        # Queries times relation heads, in one layer and for one kind of relation.
        return int(real_tokens(batch.tensors).sum()) * self.heads

    @override
    def total(
        self, student: ModelOutput, teachers: Sequence[ModelOutput], projection: "nn.Module | None"
    ) -> "Tensor":
        from zoo.distillation.divergences import attention_divergence

        allowed = self.allowed(student.batch)
        sums = []
        for student_layer, teacher_layer in self.pairs:
            student_vectors = student.queries_keys_values(student_layer)
            teacher_vectors = teachers[0].queries_keys_values(teacher_layer)
            for relation in self.settings.relations:
                index = VECTORS.index(relation)
                predicted = relation_scores(student_vectors[index], self.heads)
                target = relation_scores(teacher_vectors[index], self.heads)
                sums.append(attention_divergence(predicted, target, allowed))
        return sum(sums[1:], sums[0]) / len(self.settings.relations)


def relation_scores(vectors: "Tensor", heads: int) -> "Tensor":
    """Return the scaled dot products between tokens, (rows, relation heads, tokens, tokens)."""
    # ``vectors`` are queries, keys or values, (rows, attention heads, tokens, head width). The
    # attention heads are concatenated and split again, so that models with different numbers of
    # heads can be compared (section 3.1 of the paper).
    rows, _, tokens, _ = vectors.shape
    split = vectors.transpose(1, 2).reshape(rows, tokens, heads, -1).transpose(1, 2)
    scores: Tensor = split @ split.transpose(-1, -2) / split.shape[-1] ** 0.5
    return scores
