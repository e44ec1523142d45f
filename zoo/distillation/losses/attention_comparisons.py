"""Loss terms over the attention of layers: scores, probabilities, and relations of q, k and v."""

import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from torch import Tensor, nn

from zoo.distillation.losses import terms
from zoo.distillation.losses.comparisons import Comparison, Layers, ModelView, Side
from zoo.distillation.losses.token_masks import attention_pairs, real_tokens
from zoo.errors import UsageError
from zoo.objectives.base import Batch


class AttentionComparison(Comparison):
    """Base class of terms over attention.

    Attributes:
        captures: argument of ``capture``.
    """

    fields: ClassVar[tuple[str, ...]] = ("layers",)
    captures: ClassVar[str] = "attention_scores"

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        for shape in (self.student, *self.teachers):
            if not shape.heads:
                raise UsageError(f"{self.term.kind} compares attention, and a model has none")

    def layers(self, side: Side) -> Layers:
        """See ``Comparison``."""
        return {self.captures: {pair[side == "teacher"] for pair in self.pairs}}

    def allowed(self, batch: Mapping[str, Tensor]) -> Tensor:
        """Return which keys a query attends to, (rows, 1, tokens, tokens), bool."""
        return attention_pairs(batch, causal=self.student.causal)

    def require_equal_heads(self, remedy: str) -> None:
        """Check that both models have one number of heads.

        Args:
            remedy: remedy where they do not.

        Raises:
            UsageError: they do not.
        """
        counts = self.student.heads, self.teachers[0].heads
        if counts[0] != counts[1]:
            raise UsageError(
                f"{self.term.kind} compares heads, and the student has {counts[0]}, "
                f"its teacher {counts[1]}",
                remedy,
            )


class ScoresComparison(AttentionComparison):
    """Base class of terms over attention scores of single heads."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.require_equal_heads(
            "relations with relation_heads compares models with other numbers of heads"
        )

    def total(
        self, student: ModelView, teachers: Sequence[ModelView], projection: nn.Module | None
    ) -> Tensor:
        """See ``Comparison``: the sum over layers."""
        pairs = self.allowed(student.batch)
        sums = [
            self.distance(student.attention_scores(a), teachers[0].attention_scores(b), pairs)
            for a, b in self.pairs
        ]
        return sum(sums[1:], sums[0])

    @staticmethod
    @abstractmethod
    def distance(student: Tensor, teacher: Tensor, pairs: Tensor) -> Tensor:
        """Return the sum over (rows, heads, tokens, tokens), of pairs of tokens that attend."""


class AttentionScoresError(ScoresComparison):
    """Squared differences of attention scores."""

    distance = staticmethod(terms.attention_scores_error)

    def count(self, batch: Batch) -> int:
        """See ``Comparison``: pairs of tokens and heads of one layer."""
        return int(self.allowed(batch.tensors).sum()) * self.student.heads


class AttentionDivergence(ScoresComparison):
    """KL(teacher || student) of attention probabilities."""

    distance = staticmethod(terms.attention_divergence)

    def count(self, batch: Batch) -> int:
        """See ``Comparison``: queries and heads of one layer."""
        return int(real_tokens(batch.tensors).sum()) * self.student.heads


class Relations(AttentionComparison):
    """KL(teacher || student) of the relations of queries, keys or values among themselves."""

    fields = ("layers", "relations", "relation_heads")
    captures: ClassVar[str] = "queries_keys_values"

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        if self.term.relation_heads is None:
            self.require_equal_heads(
                f"--set distillation.terms.{self.name}.relation_heads=N splits both into N parts"
            )
        self.heads = self.term.relation_heads or self.student.heads
        widths = [shape.hidden_size for shape in (self.student, *self.teachers)]
        odd = next((width for width in widths if width % self.heads), None)
        if odd is not None:
            raise UsageError(
                f"relation_heads of terms.{self.name} is {self.heads}, which does not divide the "
                f"width {odd}",
                f"--set distillation.terms.{self.name}.relation_heads=N takes a divisor of "
                f"{math.gcd(*widths)}",
            )

    def count(self, batch: Batch) -> int:
        """See ``Comparison``: queries and relation heads of one layer and one relation."""
        return int(real_tokens(batch.tensors).sum()) * self.heads

    def total(
        self, student: ModelView, teachers: Sequence[ModelView], projection: nn.Module | None
    ) -> Tensor:
        """See ``Comparison``: the mean over the relations, summed over layers."""
        pairs, sums = self.allowed(student.batch), []
        for first, second in self.pairs:
            mine = student.queries_keys_values(first)
            other = teachers[0].queries_keys_values(second)
            for name in self.term.relations:
                index = ("queries", "keys", "values").index(name)
                scores = [terms.relation_scores(qkv[index], self.heads) for qkv in (mine, other)]
                sums.append(terms.attention_divergence(scores[0], scores[1], pairs))
        return sum(sums[1:], sums[0]) / len(self.term.relations)
