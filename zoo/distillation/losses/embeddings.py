"""Squared differences of the embeddings that sentence encoders return."""

from typing import TYPE_CHECKING, ClassVar

from zoo.distillation.losses.base import TextEmbeddingLoss
from zoo.distillation.outputs import HeadEmbeddings
from zoo.errors import UsageError
from zoo.families.distillation import SENTENCES
from zoo.overrides import override

if TYPE_CHECKING:
    from zoo.objectives.base import Batch


class EmbeddingMSE(TextEmbeddingLoss):
    """Squared differences of the outputs of sentence encoders."""

    name: ClassVar[str] = "embeddings"
    summary: ClassVar[str] = "squared differences of sentence embeddings"
    needs_head: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.objective.name != SENTENCES:
            raise UsageError(
                f"terms.{self.term_name}: embeddings are outputs of sentence encoders, not of "
                f"{self.objective.name}",
                "the kind sentence-mse compares texts by the hidden states of any model",
            )

    @property
    @override
    def teacher_output(self) -> HeadEmbeddings:
        return HeadEmbeddings(self.objective.name)

    @override
    def num_texts(self, batch: "Batch") -> int:
        return batch.rows
