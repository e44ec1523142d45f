"""Multiple negatives ranking (Henderson et al. 2017, arXiv:1705.00652, section 4.4)."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from zoo.finetuning.embeddings.losses.base import EmbeddingLoss
from zoo.finetuning.embeddings.measures import RETRIEVAL, Measure
from zoo.overrides import override

if TYPE_CHECKING:
    from torch import Tensor

    from zoo.finetuning.embeddings.representation import EmbeddedBatch


@dataclass(frozen=True, kw_only=True)
class MultipleNegatives(EmbeddingLoss):
    """Cross-entropy of each anchor's own text among all texts of the batch.

    The texts of other anchors, and all hard negatives, are negatives. No text is in a batch twice,
    as far as the data allows.
    """

    name: ClassVar[str] = "multiple-negatives"
    summary: ClassVar[str] = "cross-entropy of each anchor's text among all texts of the batch"
    measure: ClassVar[Measure] = RETRIEVAL
    compares_samples: ClassVar[bool] = True
    separates_texts: ClassVar[bool] = True
    compares_any: ClassVar[bool] = True

    scale: float = 20.0  # Factor of the similarities.

    def __post_init__(self) -> None:
        if self.scale <= 0:
            raise ValueError(f"scale is {self.scale}, not positive")

    @override
    def sum(self, batch: "EmbeddedBatch") -> "Tensor":
        import torch
        from torch.nn import functional as F

        texts, first = batch.gather(batch.vectors[1:].transpose(0, 1))
        columns = list(texts.transpose(0, 1))
        scores = batch.score_matrix(batch.vectors[0], columns, self.scale)
        labels = torch.arange(first, first + len(scores), device=scores.device)
        return F.cross_entropy(scores, labels, reduction="none").sum()
