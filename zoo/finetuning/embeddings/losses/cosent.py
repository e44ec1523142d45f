"""CoSENT (Su 2022, https://kexue.fm/archives/8847)."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from zoo.finetuning.embeddings.losses.base import EmbeddingLoss, LabelContent, Negatives
from zoo.finetuning.embeddings.measures import SCORES, Measure
from zoo.overrides import override

if TYPE_CHECKING:
    from torch import Tensor

    from zoo.finetuning.embeddings.representation import EmbeddedBatch


@dataclass(frozen=True, kw_only=True)
class CoSENT(EmbeddingLoss):
    """The order of pairs with scores within the micro-batch counts."""

    name: ClassVar[str] = "cosent"
    summary: ClassVar[str] = "order of the cosine similarities of pairs with scores"
    label: ClassVar[LabelContent] = "scores"
    negatives: ClassVar[Negatives] = "none"
    measure: ClassVar[Measure] = SCORES
    compares_samples: ClassVar[bool] = True

    scale: float = 20.0  # Factor of the cosine similarities.

    def __post_init__(self) -> None:
        if self.scale <= 0:
            raise ValueError(f"scale is {self.scale}, not positive")

    @override
    def sum(self, batch: "EmbeddedBatch") -> "Tensor":
        from zoo.finetuning.embeddings.losses.functions import cosent

        pairs, _ = batch.gather(batch.vectors.transpose(0, 1))
        labels, _ = batch.gather(batch.labels)
        loss = cosent(pairs[:, 0], pairs[:, 1], labels, self.scale)
        return loss * batch.vectors.shape[1]
