"""The cache of a teacher's outputs in a run: when it can be used, and what it holds."""

from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import torch

from zoo.distillation.losses.base import DistillationLoss
from zoo.distillation.outputs import HeadEmbeddings, TeacherLogits, TextEmbeddings
from zoo.distillation.teachers.cached_teacher import (
    CachedEmbeddings,
    CachedLogits,
    CachedOutput,
    CachedTeacher,
)
from zoo.distillation.teachers.teacher import Teacher
from zoo.distillation.teachers.teacher_cache import CacheHeader, TeacherCache
from zoo.errors import UsageError
from zoo.finetuning.objective import FineTuning
from zoo.io.local import require_local
from zoo.objectives.base import TrainingObjective
from zoo.objectives.masked import MASKED_LM
from zoo.overrides import override
from zoo.training.base import RunSetup
from zoo.training.config.distill import DistillationConfig
from zoo.training.config.run_config import RunConfig
from zoo.training.trainer import Callback, Trainer

CAUSAL_LM = "causal-lm"
SHAPELESS = {"top_k": 0, "classes": 0, "temperatures": []}  # of outputs other than logits
WITHOUT = "leave out --cache-teacher"


class CacheCallback(Callback):
    """Writes a cache before each checkpoint, so that a resumed run finds all earlier outputs."""

    def __init__(self, cache: TeacherCache) -> None:
        self.cache = cache

    @override
    def on_save(self, trainer: Trainer) -> None:
        self.cache.flush()

    @override
    def on_close(self, trainer: Trainer) -> None:
        self.cache.close()


def with_cache(
    teachers: Sequence[Teacher],
    losses: Sequence[DistillationLoss],
    base: RunSetup,
    settings: DistillationConfig,
) -> list[Teacher]:
    """Return the teachers, each with a cache; several teachers have a directory each."""
    if getattr(base.config, "compile", False):
        raise UsageError("--cache-teacher does not work with compile=true", WITHOUT)
    if isinstance(base.objective, FineTuning) and base.objective.averages_windows:
        raise UsageError(
            "--cache-teacher keeps one output per row, and texts are read in windows", WITHOUT
        )
    if settings.align == "tokens":
        _require_repeated_inputs(base.objective)
    require_local(str(settings.cache_teacher), "output")
    folder = Path(str(settings.cache_teacher))
    if len(teachers) == 1:
        return [_cached(teachers[0], losses, base, settings, folder)]
    cached = [
        _cached(teacher, losses, base, settings, folder / f"teacher-{number}")
        for number, teacher in enumerate(teachers, 1)
    ]
    for output in (output for teacher in cached for output in teacher.outputs):
        if isinstance(output, CachedLogits) and output.top_k < output.columns:
            raise UsageError(
                f"{len(cached)} teachers are averaged over all {output.columns:,} classes, and "
                f"the cache keeps the {output.top_k} largest logits of each",
                f"{WITHOUT}, or --set distillation.cache_top_k={output.columns}",
            )
    return [*cached]


def _cached(
    teacher: Teacher,
    losses: Sequence[DistillationLoss],
    base: RunSetup,
    settings: DistillationConfig,
    folder: Path,
) -> CachedTeacher:
    logits = _cached_logits(losses, teacher, base, settings)
    outputs: list[CachedOutput] = [*logits, *_cached_embeddings(losses)]
    if not outputs:
        raise UsageError("no term compares outputs of the teacher", WITHOUT)
    shape: dict[str, Any] = logits[0].shape if logits else SHAPELESS
    header = CacheHeader(
        teacher=teacher.fingerprint,
        dtype=_dtype(base.config, settings),
        backend="onnx" if settings.teacher_backend == "onnx" else "torch",
        outputs=[output.name for output in outputs],
        **shape,
    )
    cache = TeacherCache(folder, header)
    values: dict[str, Any] = {field.name: getattr(teacher, field.name) for field in fields(Teacher)}
    return CachedTeacher(**values, source=teacher, cache=cache, outputs=tuple(outputs))


def _dtype(config: RunConfig, settings: DistillationConfig) -> str:
    """Return the dtype in which a teacher computes; in float32, it follows the run's autocast."""
    # The device is not known yet. A run on the CPU of a machine with a GPU gets the GPU's dtype, so
    # that its cache may not be reused on another machine.
    from zoo.training.trainer import computes_in_bfloat16

    if settings.teacher_dtype != "float32" or settings.teacher_backend == "onnx":
        return settings.teacher_dtype
    default = "cuda" if torch.cuda.is_available() else "cpu"
    return "bfloat16" if computes_in_bfloat16(config, default) else "float32"


def _require_repeated_inputs(objective: TrainingObjective) -> None:
    """Check that the teacher reads the same inputs in each epoch."""
    if isinstance(objective, FineTuning):
        reason = objective.task.inputs.varying_outputs
        if reason:
            raise UsageError(
                f"--cache-teacher does not support {objective.name}, {reason}",
                WITHOUT,
            )
    elif objective.name == MASKED_LM:
        if objective.options.mask_schedule != "static":  # type: ignore[attr-defined]
            raise UsageError(
                "each epoch has different masks, so the teacher's inputs do not repeat",
                f"--set objective_args.mask_schedule=static, or {WITHOUT}",
            )
    elif objective.name != CAUSAL_LM:
        raise UsageError(
            f"--cache-teacher supports {MASKED_LM} and {CAUSAL_LM}; with {objective.name}, the "
            "teacher's inputs do not repeat",
            WITHOUT,
        )


def _cached_logits(
    losses: Sequence[DistillationLoss],
    teacher: Teacher,
    base: RunSetup,
    settings: DistillationConfig,
) -> list[CachedLogits]:
    """Return the logits that losses compare; all have the same number of classes."""
    compared: list[tuple[DistillationLoss, TeacherLogits]] = []
    for loss in losses:
        if loss.teacher_output is None:
            raise UsageError(
                f"the term {loss.term_name} compares {loss.name}, whose tensors are too large to "
                "cache",
                WITHOUT,
            )
        if isinstance(loss.teacher_output, TeacherLogits):
            compared.append((loss, loss.teacher_output))
    if not compared:
        return []
    columns = number_of_columns(teacher, base)
    top_k = min(settings.cache_top_k, columns)
    for loss, logits in compared:
        if logits.temperature is None and top_k < columns:
            raise UsageError(
                f"the term {loss.term_name} compares all {columns:,} logits, and the cache only "
                f"keeps {top_k}",
                f"{WITHOUT}, or --set distillation.cache_top_k={columns}",
            )
    temperatures = {logits.temperature for _, logits in compared if logits.temperature is not None}
    outputs: dict[str, CachedLogits] = {}
    for _, logits in compared:
        output = CachedLogits(
            logits.term, logits.everywhere, top_k, columns, tuple(sorted(temperatures))
        )
        outputs[output.name] = output
    return list(outputs.values())


def _cached_embeddings(losses: Sequence[DistillationLoss]) -> list[CachedEmbeddings]:
    """Return the embeddings that losses compare."""
    outputs: dict[str, CachedEmbeddings] = {}
    for loss in losses:
        match loss.teacher_output:
            case HeadEmbeddings(term):
                output = CachedEmbeddings(term)
            case TextEmbeddings():
                output = CachedEmbeddings(None)
            case _:
                continue
        outputs[output.name] = output
    return list(outputs.values())


def number_of_columns(teacher: Teacher, base: RunSetup) -> int:
    """Return the number of classes that both models have."""
    student: Any = base.model_config
    if isinstance(base.objective, FineTuning):
        return len(student.labels)
    config: Any = teacher.checkpoint.config
    return int(min(student.vocab_size, config.vocab_size))
