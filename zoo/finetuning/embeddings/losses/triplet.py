"""The triplet objective (Reimers and Gurevych 2019, arXiv:1908.10084, section 3)."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from zoo.finetuning.embeddings.losses.base import EmbeddingLoss, Negatives
from zoo.finetuning.embeddings.measures import TRIPLETS, Measure
from zoo.overrides import override

if TYPE_CHECKING:
    from torch import Tensor

    from zoo.finetuning.embeddings.representation import EmbeddedBatch


@dataclass(frozen=True, kw_only=True)
class Triplet(EmbeddingLoss):
    """An anchor is nearer to its text than to the negative, by a margin."""

    name: ClassVar[str] = "triplet"
    summary: ClassVar[str] = "distance to a text and to a negative, by a margin"
    negatives: ClassVar[Negatives] = "one"
    measure: ClassVar[Measure] = TRIPLETS

    margin: float = 5.0  # In Euclidean distance.

    def __post_init__(self) -> None:
        if self.margin < 0:
            raise ValueError(f"margin is {self.margin}, not 0 or more")

    @override
    def sum(self, batch: "EmbeddedBatch") -> "Tensor":
        from zoo.finetuning.embeddings.losses.functions import triplet

        return triplet(batch.vectors[0], batch.vectors[1], batch.vectors[2], self.margin).sum()
