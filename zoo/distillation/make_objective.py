"""Construction of a distillation run's objective: its loss terms and teachers."""

from collections.abc import Sequence
from typing import Any

import msgspec
import torch

from zoo.checkpoint import Checkpoint, load_text_tokenizer
from zoo.distillation.discriminator import Discriminator, compares_generators, teacher_pair
from zoo.distillation.losses.bind import bind_terms
from zoo.distillation.losses.comparisons import Comparison, ModelShape
from zoo.distillation.objective import Distillation
from zoo.distillation.recipes import TEXT
from zoo.distillation.replacement import ModuleReplacing
from zoo.distillation.sentences import TextAligner
from zoo.distillation.teachers.caching import with_cache
from zoo.distillation.teachers.checks import (
    CAUSAL,
    require_head,
    require_same_tokens,
    require_texts_alone,
)
from zoo.distillation.teachers.onnx_teacher import OnnxTeacher, require_onnx
from zoo.distillation.teachers.teacher import Teacher
from zoo.errors import UsageError
from zoo.families.base import Family
from zoo.finetune.base import FineTuning
from zoo.finetune.labels import ClassTask
from zoo.finetune.setup import FineTuneSetup
from zoo.nn.devices import resolve_device
from zoo.objectives.base import TrainingObjective
from zoo.objectives.replaced_token_detection import ReplacedTokenDetection
from zoo.plugins.tasks import training_task
from zoo.tasks.seq2seq.train import Seq2Seq
from zoo.tokenizers import TextTokenizer
from zoo.training.base import RunSetup
from zoo.training.config.distill import DistillationConfig
from zoo.training.setup import TrainSetup


def make_objective(
    base: RunSetup,
    settings: DistillationConfig,
    checkpoints: Sequence[Checkpoint],
    generator: Checkpoint | None = None,
) -> Distillation:
    """Return the objective of a run; the models' sizes decide which terms apply.

    Args:
        base: setup of the student's run.
        settings: teachers and terms.
        checkpoints: checkpoints of the teachers, in the order of the settings.
        generator: checkpoint of the generator of the settings, if there is one.

    Raises:
        UsageError: student and teachers cannot be compared.
    """
    task = isinstance(base, FineTuneSetup)
    shapes = [model_shape(c.family, c.config, base.objective, task=task) for c in checkpoints]
    student = model_shape(base.family, base.model_config, base.objective, task=task)
    comparisons = bind_terms(settings.terms, base.objective, student, shapes)
    teachers = [
        _teacher(reference, checkpoint, base, comparisons, settings)
        for reference, checkpoint in zip(settings.teachers, checkpoints, strict=True)
    ]
    if compares_generators(comparisons, base.objective):
        teachers = [teacher_pair(teachers, base, settings.generator, generator)]
    if settings.cache_teacher is not None:
        teachers = with_cache(teachers, comparisons, base, settings)
    parts = (base.objective, settings.objective_weight, comparisons, teachers)
    if settings.replacement is None:
        aligner = text_aligner(base, checkpoints) if settings.align == TEXT else None
        return Distillation(*parts, aligner=aligner)
    return ModuleReplacing(*parts, replacement=settings.replacement, seed=base.config.seed)


def _teacher(
    reference: str,
    checkpoint: Checkpoint,
    base: RunSetup,
    comparisons: Sequence[Comparison],
    settings: DistillationConfig,
) -> Teacher:
    """Return a teacher that has what the terms compare.

    Raises:
        UsageError: it has another head, other tokens, or does not run on the backend.
    """
    needs_head = settings.replacement is not None or any(
        comparison.needs_head for comparison in comparisons
    )
    if needs_head:
        require_head(reference, checkpoint, base)
    objective: TrainingObjective = base.objective
    if isinstance(base, FineTuneSetup):
        objective = _task(base, checkpoint)
    elif settings.align == TEXT:
        require_texts_alone(reference, comparisons, objective)
    else:
        require_same_tokens(reference, checkpoint, base)
    if isinstance(objective, ReplacedTokenDetection):
        objective = Discriminator(objective)
    kind, device = _backend(reference, checkpoint, objective, comparisons, settings)
    dtype = getattr(torch, settings.teacher_dtype)
    return kind(reference, checkpoint, objective, dtype, needs_head, device)


def _task(base: FineTuneSetup, checkpoint: Checkpoint) -> TrainingObjective:
    """Return the task with the teacher's inputs, padding and the labels of the student's data."""
    config = checkpoint.config
    inputs = tuple(checkpoint.family.onnx(config, checkpoint.head_name).inputs)
    labelled = msgspec.structs.replace(config, labels=base.model_config.labels)
    tokenizer = load_text_tokenizer(checkpoint)
    task: FineTuning = training_task(base.config.task)(
        labelled, inputs, tokenizer.pad_id, base.config
    )
    task.generation_defaults = checkpoint.model.generation
    if isinstance(task, Seq2Seq) and isinstance(base.objective, Seq2Seq):
        task.generate_as(base.objective, checkpoint.family, tokenizer)
    if isinstance(task, ClassTask) and isinstance(base.objective, ClassTask):
        task.weights = base.objective.weights
    return task


def _backend(
    reference: str,
    checkpoint: Checkpoint,
    objective: TrainingObjective,
    comparisons: Sequence[Comparison],
    settings: DistillationConfig,
) -> tuple[type[Teacher], torch.device | None]:
    """Return the class of a teacher, and its device; ``None`` for that of the student.

    Raises:
        UsageError: the teacher does not run on the backend of the settings.
    """
    backend = settings.teacher_backend
    if backend == "onnx":
        require_onnx(reference, checkpoint, objective, comparisons, settings.teacher_dtype)
        return OnnxTeacher, None
    if checkpoint.is_export:
        raise UsageError(
            f"the teacher {reference} is an ONNX graph", "--teacher-backend onnx runs it"
        )
    return Teacher, None if backend == "auto" else torch.device(resolve_device(backend, None).type)


def model_shape(
    family: Family, config: Any, objective: TrainingObjective, *, task: bool
) -> ModelShape:
    """Return the sizes of a model that terms depend on.

    Args:
        family: family of the model.
        config: its configuration.
        objective: objective of the student.
        task: whether the run is on labelled data.
    """
    classes = len(config.labels) if task and family.heads()[objective.head].has_labels else 0
    return ModelShape(
        layers=getattr(config, "num_layers", 0),
        hidden_size=getattr(config, "hidden_size", 0),
        heads=getattr(config, "num_heads", 0),
        classes=classes,
        causal=CAUSAL in family.heads(),
    )


def text_aligner(base: RunSetup, checkpoints: Sequence[Checkpoint]) -> TextAligner:
    """Return the ``TextAligner`` of a teacher with another tokenizer than its student.

    Raises:
        UsageError: there are several teachers, or the run is not on text.
    """
    if len(checkpoints) > 1 or not isinstance(base, TrainSetup):
        raise UsageError(
            "--align text is for one teacher, and for runs on text",
            "labelled data is read with each model's tokens anyway",
        )
    (teacher,), vocabulary = checkpoints, base.objective.vocabulary
    return TextAligner(
        TextTokenizer(vocabulary.tokenizer, vocabulary.info),
        load_text_tokenizer(teacher),
        teacher.family.max_seq_len(teacher.config),
    )
