"""Construction of a distillation run's objective: its losses and teachers."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch

from zoo.adapted_models.checkpoint import AdaptedCheckpoint
from zoo.checkpoint import Checkpoint, load_text_tokenizer
from zoo.distillation.discriminator import Discriminator, compares_generators, teacher_pair
from zoo.distillation.losses import loss_types
from zoo.distillation.losses.base import DistillationLoss, ModelShape, Term
from zoo.distillation.objective import Distillation
from zoo.distillation.recipes import TEXT
from zoo.distillation.replacement import ModuleReplacing
from zoo.distillation.sentences import TextAligner
from zoo.distillation.teachers.caching import with_cache
from zoo.distillation.teachers.checks import (
    CAUSAL,
    require_head,
    require_same_tokens,
    require_text_losses,
)
from zoo.distillation.teachers.onnx_teacher import OnnxTeacher, require_onnx
from zoo.distillation.teachers.teacher import Teacher
from zoo.distillation.term_tables import parse_terms
from zoo.errors import UsageError
from zoo.families.base import Family
from zoo.families.distillation import Terms
from zoo.finetuning.objective import FineTuning
from zoo.finetuning.setup import FineTuneSetup
from zoo.nn.devices import resolve_device
from zoo.objectives.base import Objective, TrainingObjective
from zoo.objectives.replaced_token_detection import ReplacedTokenDetection
from zoo.tokenizers import TextTokenizer
from zoo.training.base import RunSetup
from zoo.training.config.distill import DistillationConfig
from zoo.training.setup import PretrainSetup


def make_objective(
    base: RunSetup,
    settings: DistillationConfig,
    checkpoints: Sequence[Checkpoint],
    generator: Checkpoint | None = None,
) -> Distillation:
    """Return the objective of a run."""
    # ``base`` is the setup of the student's run; ``checkpoints`` belong to the teachers in
    # order.
    task = isinstance(base, FineTuneSetup)
    shapes = [model_shape(c.family, c.config, base.objective, task=task) for c in checkpoints]
    student = model_shape(base.family, base.model_config, base.objective, task=task)
    if isinstance(base.objective, FineTuning) and base.objective.output_width is not None:
        student = replace(student, hidden_size=base.objective.output_width)
        for number, checkpoint in enumerate(checkpoints):
            teacher_width = base.objective.for_teacher(checkpoint).output_width
            if teacher_width is not None:
                shapes[number] = replace(shapes[number], hidden_size=teacher_width)
    losses = build_losses(settings.terms, base.objective, student, shapes)
    teachers = [
        _teacher(reference, checkpoint, base, losses, settings)
        for reference, checkpoint in zip(settings.teachers, checkpoints, strict=True)
    ]
    if compares_generators(losses, base.objective):
        teachers = [teacher_pair(teachers, base, settings.generator, generator)]
    if settings.cache_teacher is not None:
        teachers = with_cache(teachers, losses, base, settings)
    parts = (base.objective, settings.objective_weight, losses, teachers)
    if settings.replacement is None:
        aligner = text_aligner(base, checkpoints) if settings.align == TEXT else None
        return Distillation(*parts, aligner=aligner)
    return ModuleReplacing(*parts, replacement=settings.replacement, seed=base.config.seed)


def build_losses(
    tables: Terms,
    objective: TrainingObjective,
    student: ModelShape,
    teachers: Sequence[ModelShape],
) -> list[DistillationLoss]:
    """Return the losses of a configuration's terms; terms without weight are left out."""
    _require_no_initial_weights(objective)
    losses: list[DistillationLoss] = []
    for term in parse_terms(tables, "distillation.", recorded=True):
        if not term.weight:
            continue
        if term.name in objective.loss_weights:
            raise UsageError(
                f"{objective.name} has a loss of its own that is called {term.name}",
                f"rename terms.{term.name}",
            )
        if len(teachers) > 1:
            _require_averaging(term.loss, len(teachers))
        if term.loss.label_types:
            _require_labels(term, objective)
        losses += term.loss.build(term, objective, student, teachers)
    return losses


def _require_labels(term: Term, objective: TrainingObjective) -> None:
    """Check that an objective has labels of a type that the loss of a term reads."""
    hint = f"--set distillation.terms.{term.name}.weight=0 leaves it out"
    label_types = [objective.label_type(name) for name in objective.label_tensors]
    if not label_types:
        raise UsageError(
            f"terms.{term.name}: the loss {term.loss.name} reads labels, and {objective.name} has "
            "no label for each row of its outputs",
            hint,
        )
    if not set(label_types).intersection(term.loss.label_types):
        raise UsageError(
            f"terms.{term.name}: the loss {term.loss.name} reads labels that are "
            f"{' or '.join(term.loss.label_types)}, and those of {objective.name} are "
            f"{' or '.join(label_types)}",
            hint,
        )


def _require_averaging(loss: type[DistillationLoss], teachers: int) -> None:
    """Check that a loss averages several teachers."""
    if not loss.averages_teachers:
        averaging = [other.name for other in loss_types() if other.averages_teachers]
        raise UsageError(
            f"{loss.name} compares one teacher, and there are {teachers} teachers",
            f"only {', '.join(averaging)} average several teachers",
        )


def _require_no_initial_weights(objective: TrainingObjective) -> None:
    """Check that no option of the objective replaces the student's initial weights."""
    if not isinstance(objective, Objective):
        return
    for name in objective.from_scratch_options:
        value = getattr(objective.options, name)
        if value:
            raise UsageError(
                f"objective_args.{name} is {value}, which would overwrite what the student learned "
                "from its teacher",
                "leave it out",
            )


def _teacher(
    reference: str,
    checkpoint: Checkpoint,
    base: RunSetup,
    losses: Sequence[DistillationLoss],
    settings: DistillationConfig,
) -> Teacher:
    """Return a teacher, after checking that it has what the losses compare."""
    if isinstance(checkpoint, AdaptedCheckpoint) and checkpoint.has_virtual_tokens:
        raise UsageError(
            f"{reference} has virtual tokens before each text, which its student lacks",
            "name a teacher with another --adapter, or without one",
        )
    needs_head = settings.replacement is not None or any(loss.needs_head for loss in losses)
    if needs_head:
        require_head(reference, checkpoint, base)
    objective: TrainingObjective = base.objective
    if isinstance(base, FineTuneSetup):
        objective = base.objective.for_teacher(checkpoint)
    elif settings.align == TEXT:
        require_text_losses(reference, losses, objective)
    else:
        require_same_tokens(reference, checkpoint, base)
    if isinstance(objective, ReplacedTokenDetection):
        objective = Discriminator(objective)
    kind, device = _backend(reference, checkpoint, objective, losses, settings)
    dtype = getattr(torch, settings.teacher_dtype)
    return kind(reference, checkpoint, objective, dtype, needs_head, device)


def _backend(
    reference: str,
    checkpoint: Checkpoint,
    objective: TrainingObjective,
    losses: Sequence[DistillationLoss],
    settings: DistillationConfig,
) -> tuple[type[Teacher], torch.device | None]:
    """Return the class of a teacher and its device; ``None`` to follow the student's device."""
    backend = settings.teacher_backend
    if backend == "onnx":
        require_onnx(reference, checkpoint, objective, losses, settings.teacher_dtype)
        return OnnxTeacher, None
    if checkpoint.is_export:
        raise UsageError(
            f"the teacher {reference} is an ONNX graph", "--teacher-backend onnx runs it"
        )
    return Teacher, None if backend == "auto" else torch.device(resolve_device(backend, None).type)


def model_shape(
    family: Family, config: Any, objective: TrainingObjective, *, task: bool
) -> ModelShape:
    """Return the sizes of a model that losses depend on."""
    classes = len(config.labels) if task and family.heads()[objective.head].has_labels else 0
    return ModelShape(
        layers=getattr(config, "num_layers", 0),
        hidden_size=getattr(config, "hidden_size", 0),
        heads=getattr(config, "num_heads", 0),
        classes=classes,
        causal=CAUSAL in family.heads(),
    )


def text_aligner(base: RunSetup, checkpoints: Sequence[Checkpoint]) -> TextAligner:
    """Return the ``TextAligner`` for a teacher whose tokenizer differs from the student's."""
    if len(checkpoints) > 1 or not isinstance(base, PretrainSetup):
        raise UsageError(
            "--align text needs a single teacher, and a run on text",
            "each model reads labelled data with its own tokenizer anyway",
        )
    (teacher,) = checkpoints
    vocabulary = base.objective.vocabulary
    return TextAligner(
        TextTokenizer(vocabulary.tokenizer, vocabulary.info),
        load_text_tokenizer(teacher),
        teacher.family.max_seq_len(teacher.config),
    )
