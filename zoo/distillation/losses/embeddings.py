"""Squared differences of the embeddings that sentence encoders return."""

from typing import ClassVar

from torch import Tensor

from zoo.distillation.losses.base import EmbeddingLoss, distillation_loss
from zoo.distillation.outputs import ModelOutput
from zoo.distillation.recipes import SENTENCES
from zoo.errors import UsageError
from zoo.objectives.base import Batch
from zoo.overrides import override


@distillation_loss("embeddings")
class EmbeddingMSE(EmbeddingLoss):
    """Squared differences of the outputs of sentence encoders."""

    needs_head: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.objective.name != SENTENCES:
            raise UsageError(
                f"terms.{self.name}: embeddings are outputs of sentence encoders, not of "
                f"{self.objective.name}",
                "the kind sentence-mse compares texts by the hidden states of any model",
            )

    @override
    def embeddings(self, output: ModelOutput) -> Tensor:
        vectors: Tensor = output.outputs.logits[self.objective.name]
        return vectors

    @override
    def num_texts(self, batch: Batch) -> int:
        return batch.rows
