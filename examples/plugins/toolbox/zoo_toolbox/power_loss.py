"""A loss of sentence embeddings."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from zoo.finetuning.embeddings.losses.base import EmbeddingLoss, LabelContent, Negatives
from zoo.finetuning.embeddings.measures import SCORES, Measure

if TYPE_CHECKING:
    from torch import Tensor

    from zoo.finetuning.embeddings.representation import EmbeddedBatch


@dataclass(frozen=True, kw_only=True)
class PowerLoss(EmbeddingLoss):
    """A power of the difference between a cosine similarity and a score."""

    name: ClassVar[str] = "power"
    summary: ClassVar[str] = "power of the error of the cosine similarities of pairs with scores"
    label: ClassVar[LabelContent] = "scores"
    negatives: ClassVar[Negatives] = "none"
    measure: ClassVar[Measure] = SCORES

    exponent: float = 2.0

    def sum(self, batch: "EmbeddedBatch") -> "Tensor":
        """Return the sum over the rows of a batch."""
        from torch.nn import functional as F

        cosines = F.cosine_similarity(batch.vectors[0], batch.vectors[1])
        return ((cosines - batch.labels).abs() ** self.exponent).sum()
