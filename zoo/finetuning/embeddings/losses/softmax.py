"""The classification objective (Reimers and Gurevych 2019, arXiv:1908.10084, section 3)."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from zoo.finetuning.embeddings.losses.base import EmbeddingLoss, LabelContent, Negatives
from zoo.finetuning.embeddings.measures import CLASSES, Measure
from zoo.overrides import override

if TYPE_CHECKING:
    from torch import Tensor

    from zoo.finetuning.embeddings.representation import EmbeddedBatch


@dataclass(frozen=True, kw_only=True)
class Softmax(EmbeddingLoss):
    """Cross-entropy of the classes of pairs; the classifier is dropped after training."""

    name: ClassVar[str] = "softmax"
    summary: ClassVar[str] = "cross-entropy of the classes of pairs"
    label: ClassVar[LabelContent] = "classes"
    negatives: ClassVar[Negatives] = "none"
    measure: ClassVar[Measure] = CLASSES

    @override
    def sum(self, batch: "EmbeddedBatch") -> "Tensor":
        from torch.nn import functional as F

        assert batch.class_logits is not None, "labels are classes"
        return F.cross_entropy(batch.class_logits, batch.labels, reduction="sum")
