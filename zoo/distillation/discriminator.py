"""Teachers of replaced-token detection: discriminators that read the student's corrupted tokens."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from zoo.objectives.base import LossOutput, Outputs, TrainingObjective
from zoo.objectives.masked import model_inputs
from zoo.objectives.replaced_token_detection import (
    REPLACED,
    REPLACED_TOKEN,
    ReplacedTokenDetection,
    detection_logits,
    discriminator_loss,
)

if TYPE_CHECKING:
    from torch import Tensor


class Discriminator(TrainingObjective):
    """The forward pass of a discriminator alone, whose tokens were corrupted before.

    Args:
        student: objective of the student.
    """

    name: ClassVar[str] = REPLACED_TOKEN
    head: ClassVar[str] = REPLACED_TOKEN

    def __init__(self, student: ReplacedTokenDetection) -> None:
        self.config = student.config

    @property
    def scored_terms(self) -> tuple[str, ...]:
        """See ``TrainingObjective``: none of the tokens before their corruption."""
        return ()

    def forward(self, model: Any, batch: "Mapping[str, Tensor]") -> Outputs:
        """Return the logits of all tokens, (rows, length)."""
        hidden = model.encode(**model_inputs(batch))
        return Outputs({self.name: model.scores(hidden, batch.get("position_ids")).float()})

    def scored_logits(
        self, outputs: Outputs, batch: "Mapping[str, Tensor]"
    ) -> "Mapping[str, Tensor]":
        """See ``ReplacedTokenDetection``."""
        return detection_logits(outputs, batch)

    def loss(self, outputs: Outputs, batch: "Mapping[str, Tensor]") -> LossOutput:
        """Compute the loss on the student's corrupted tokens, for evaluations."""
        real = batch["document_ids"] != 0
        return discriminator_loss(outputs.logits[self.name], batch[REPLACED], real)
