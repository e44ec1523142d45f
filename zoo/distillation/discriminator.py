"""Teachers of replaced-token detection: a discriminator and the generator trained with it."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec

from zoo.checkpoint import Checkpoint, is_checkpoint
from zoo.distillation.losses.base import DistillationLoss
from zoo.distillation.outputs import ModelOutput, TeacherLogits
from zoo.distillation.teachers.checks import require_same_tokens
from zoo.distillation.teachers.teacher import Teacher
from zoo.errors import UsageError
from zoo.families.distillation import DistillationRecipe
from zoo.nn.dtypes import at_least_float32
from zoo.nn.row_chunks import Logits
from zoo.objectives.base import LossOutput, Outputs, TrainingObjective
from zoo.objectives.masked import MASKED_LM, MaskedLanguageModelling, model_inputs
from zoo.objectives.replaced_token_detection import (
    MASKED_IDS,
    REPLACED,
    REPLACED_TOKEN,
    ReplacedTokenDetection,
    detection_logits,
    discriminator_loss,
)
from zoo.overrides import override
from zoo.training.base import RunSetup

if TYPE_CHECKING:
    from torch import Tensor

LOG = logging.getLogger("zoo")
GENERATOR = "generator"  # Directory next to the discriminator's in a run.
REMEDY = "--set distillation.generator=REF names one"


class Discriminator(TrainingObjective):
    """The forward pass of a discriminator on tokens that are already corrupted."""

    name: ClassVar[str] = REPLACED_TOKEN
    head: ClassVar[str] = REPLACED_TOKEN

    def __init__(self, student: ReplacedTokenDetection) -> None:
        self.config = student.config

    @property
    @override
    def scored_terms(self) -> tuple[str, ...]:
        """None: the original tokens are not predicted."""
        return ()

    @override
    def forward(self, model: Any, batch: "Mapping[str, Tensor]") -> Outputs:
        """Return the logits of all tokens, (rows, length)."""
        hidden = model.encode(**model_inputs(batch))
        scores = model.scores(hidden, batch.get("position_ids"))
        return Outputs({self.name: at_least_float32(scores)})

    @override
    def scored_logits(
        self, outputs: Outputs, batch: "Mapping[str, Tensor]"
    ) -> "Mapping[str, Tensor]":
        return detection_logits(outputs, batch)

    @override
    def loss(self, outputs: Outputs, batch: "Mapping[str, Tensor]") -> LossOutput:
        """Compute the loss on the tokens that the student's generator corrupted."""
        real = batch["document_ids"] != 0
        return discriminator_loss(outputs.logits[self.name], batch[REPLACED], real)


@dataclass(frozen=True, kw_only=True)
class PairOutput(ModelOutput):
    """The outputs of a discriminator and its generator."""

    discriminator: ModelOutput
    generator: ModelOutput

    @override
    def logits(self, term: str, *, everywhere: bool) -> Logits:
        output = self.generator if term == MASKED_LM else self.discriminator
        return output.logits(term, everywhere=everywhere)


@dataclass(frozen=True, kw_only=True)
class TeacherPair(Teacher):
    """A discriminator with the generator that was trained with it.

    The discriminator reads tokens that the student's generator corrupted; the teacher's generator
    reads the masked ones.
    """

    generator: Teacher

    @property
    @override
    def digest(self) -> dict[str, str]:
        files = self.generator.digest.items()
        return {**super().digest, **{f"{GENERATOR}/{name}": value for name, value in files}}

    @property
    @override
    def fingerprint(self) -> dict[str, str]:
        files = self.generator.fingerprint.items()
        return {**super().fingerprint, **{f"{GENERATOR}/{name}": value for name, value in files}}

    @override
    def run(self, batch: "Mapping[str, Tensor]", layers: Mapping[str, set[int]]) -> ModelOutput:
        output = super().run(batch, layers)
        if MASKED_IDS not in batch:
            return output
        masked = self.generator.forward({**batch, "input_ids": batch[MASKED_IDS]}, {})
        parts = {field.name: getattr(output, field.name) for field in fields(ModelOutput)}
        return PairOutput(**parts, discriminator=output, generator=masked)


def teacher_pair(
    teachers: Sequence[Teacher],
    base: RunSetup,
    reference: str | None,
    checkpoint: Checkpoint | None,
) -> TeacherPair:
    """Combine a teacher with its generator."""
    teacher = teachers[0]
    objective = base.objective
    if len(teachers) > 1:
        raise UsageError(
            f"the generators of {len(teachers)} teachers cannot be averaged",
            "leave out the terms with logits_of, or name one teacher",
        )
    if reference is None or checkpoint is None:
        raise UsageError(f"the teacher {teacher.reference} has no generator", REMEDY)
    if checkpoint.head_name != MaskedLanguageModelling.head:
        raise UsageError(
            f"the generator {reference} has the head {checkpoint.head_name}, not "
            f"{MaskedLanguageModelling.head}",
            REMEDY,
        )
    require_same_tokens(reference, checkpoint, base)
    assert isinstance(objective, ReplacedTokenDetection), "no other objective has two models"
    masked = MaskedLanguageModelling(objective.vocabulary, checkpoint.config, objective.length)
    generator = Teacher(
        reference,
        checkpoint,
        masked,
        teacher.dtype,
        needs_head=True,
        device=teacher.device,
    )
    return TeacherPair(
        **{field.name: getattr(teacher, field.name) for field in fields(Teacher)},
        generator=generator,
    )


def compares_generators(losses: Sequence[DistillationLoss], objective: TrainingObjective) -> bool:
    """Return whether a loss compares the generators of replaced-token detection."""
    if not isinstance(objective, ReplacedTokenDetection):
        return False
    for loss in losses:
        output = loss.teacher_output
        if isinstance(output, TeacherLogits) and output.term == MASKED_LM:
            return True
    return False


def find_generator(recipe: DistillationRecipe, teacher: Checkpoint) -> str | None:
    """Return the generator next to a discriminator if the recipe compares generators."""
    if teacher.head_name != REPLACED_TOKEN or not _generator_terms(recipe):
        return None
    path = teacher.path.parent / GENERATOR
    return str(path) if is_checkpoint(path) else None


def adapt_to_generator(
    recipe: DistillationRecipe, teacher: Checkpoint, generator: str | None
) -> DistillationRecipe:
    """Drop the terms that compare generators if the teacher has no generator."""
    names = _generator_terms(recipe)
    if generator is not None or teacher.head_name != REPLACED_TOKEN or not names:
        return recipe
    LOG.info("without %s: the teacher has no generator; %s", ", ".join(names), REMEDY)
    terms = {name: term for name, term in recipe.terms.items() if name not in names}
    return msgspec.structs.replace(recipe, terms=terms)


def _generator_terms(recipe: DistillationRecipe) -> list[str]:
    """Return the names of the terms that compare the logits of a generator."""
    return [name for name, term in recipe.terms.items() if term.get("logits_of") == MASKED_LM]
