"""The objective of distillation wraps the student's objective and adds losses."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import nn

from zoo.distillation.losses.base import DistillationLoss, Side
from zoo.distillation.outputs import ModelOutput
from zoo.distillation.sentences import TextAligner
from zoo.distillation.teachers.cached_teacher import CachedTeacher
from zoo.distillation.teachers.checks import require_head
from zoo.distillation.teachers.teacher import PREFIX, Teacher, run_model
from zoo.errors import UsageError
from zoo.families.base import Family
from zoo.families.config import Config
from zoo.objectives.base import (
    SOURCE_IDS,
    Batch,
    Example,
    LossOutput,
    Outputs,
    TrainedModel,
    TrainingObjective,
)
from zoo.overrides import override
from zoo.training.base import RunSetup
from zoo.training.dataloader import Collate

if TYPE_CHECKING:
    from torch import Tensor


STATE = "state-of-teacher-"  # Prefix of tensors with a teacher's recurrent state.


class StudentModule(nn.Module):
    """The student, and for losses a linear map from its width to the teacher's, by name.

    The maps are trained and saved in the run's checkpoints, but not in the final model.
    """

    def __init__(self, student: nn.Module, projections: Mapping[str, nn.Module]) -> None:
        super().__init__()
        self.student = student
        self.projections = nn.ModuleDict(dict(projections))


@dataclass(frozen=True)
class DistillationOutputs(Outputs):
    """The outputs of the student and its teachers."""

    student: Any = None
    teachers: Sequence[ModelOutput] = ()
    module: Any = None  # The trained module.


@dataclass(frozen=True)
class PairedExample(Example):
    """A row of the student with the same sample as its teachers read it."""

    # ``None`` if the teachers read the student's row.
    teacher: Example | None = field(default=None)


class Distillation(TrainingObjective):
    """The losses of the student's objective, and those that compare it with its teachers.

    The student's objective or task makes batches and has losses of its own. The teachers read the
    same batches, and distillation losses compare the outputs. To the trainer, all of this is one
    objective.

    Args:
        base: the student's objective or task.
        base_weight: weight of its losses; 0 leaves them out.
        losses: the losses that compare student and teachers.
        teachers: the teachers.
        aligner: turns the student's text into the teachers' inputs; ``None`` if the teachers read
            the student's tensors, or rows of their own.
    """

    name: ClassVar[str] = "distillation"

    def __init__(
        self,
        base: TrainingObjective,
        base_weight: float,
        losses: Sequence[DistillationLoss],
        teachers: Sequence[Teacher],
        aligner: TextAligner | None = None,
    ) -> None:
        self.base = base
        self.base_weight = base_weight
        self.aligner = aligner
        self.losses = losses
        self.teachers = teachers
        self.head = base.head  # type: ignore[misc]
        self.stateful = base.stateful  # type: ignore[misc]
        self.config = base.config
        self.uses_all_parameters = bool(base_weight)
        self.needs_head = bool(base_weight) or any(loss.needs_head for loss in losses)
        if self.needs_head:  # Otherwise the head is not trained, and has no metrics.
            self.metric_for_best_model = base.metric_for_best_model
            self.greater_is_better = base.greater_is_better

    @property
    @override
    def loss_weights(self) -> Mapping[str, float]:
        weights: dict[str, float] = {}
        if self.base_weight:
            for name, weight in self.base.loss_weights.items():
                weights[name] = self.base_weight * weight
        for loss in self.losses:
            weights[loss.term_name] = loss.weight
        return weights

    @property
    def cached_teachers(self) -> list[CachedTeacher]:
        """The teachers whose outputs are kept in a cache."""
        return [teacher for teacher in self.teachers if isinstance(teacher, CachedTeacher)]

    def scored_teachers(self, base: RunSetup) -> list[Teacher | None]:
        """Return the teachers with their heads; ``None`` for each that lacks the student's head."""
        if self.aligner is not None:  # Teacher and student predict different tokens.
            return [None for _ in self.teachers]
        scored: list[Teacher | None] = []
        for teacher in self.teachers:
            try:
                require_head(teacher.reference, teacher.checkpoint, base)
            except UsageError:
                scored.append(None)
            else:
                source = teacher.source if isinstance(teacher, CachedTeacher) else teacher
                scored.append(replace(source, needs_head=True))
        return scored

    @override
    def model(self, family: Family, config: Config) -> StudentModule:
        student = self.base.model(family, config)
        projections: dict[str, nn.Module] = {}
        for loss in self.losses:
            projection = loss.new_projection()
            if projection is None:
                continue
            name = loss.term_name
            if hasattr(nn.ModuleDict, name):
                raise UsageError(f"a loss with a projection cannot be called {name!r}", "rename it")
            projections[name] = projection
        return StudentModule(student, projections)

    @override
    def begin_step(self, model: Any, step: int, max_steps: int) -> None:
        self.base.begin_step(model.student, step, max_steps)

    @override
    def stage(self, step: int, max_steps: int) -> str:
        return self.base.stage(step, max_steps)

    @override
    def models_to_save(self, model: Any) -> dict[str, TrainedModel]:
        return self.base.models_to_save(model.student)

    @override
    def after_load(
        self, model: Any, models: Mapping[str, TrainedModel], loaded: Collection[str]
    ) -> "list[Tensor]":
        return [
            *self.base.after_load(model.student, models, loaded),
            # No checkpoint has the projections.
            *model.projections.state_dict(keep_vars=True).values(),
        ]

    @override
    def finish_evaluation(self, model: Any, predictions: "Mapping[str, Tensor]") -> None:
        if self.needs_head:
            self.base.finish_evaluation(model.student, predictions)

    @override
    def compute_metrics(self, predictions: "Mapping[str, Tensor]") -> dict[str, float]:
        return self.base.compute_metrics(predictions) if self.needs_head else {}

    def collate_examples(self, collate: Collate, examples: Sequence[Example]) -> Batch:
        """Return a batch of the student's rows, with the teachers' tensors and the counts."""
        batch = collate(examples)
        tensors = dict(batch.tensors)
        teacher_rows = []
        for example in examples:
            if isinstance(example, PairedExample) and example.teacher:
                teacher_rows.append(example.teacher)
        if teacher_rows:
            teacher_tensors = self.teachers[0].objective.collate(teacher_rows).tensors
            tensors |= {f"{PREFIX}{name}": tensor for name, tensor in teacher_tensors.items()}
        if self.aligner is not None:
            tensors |= self.aligner.teacher_tensors(batch.tensors, self.base)
        counts = {loss.term_name: loss.count(batch) for loss in self.losses}
        return replace(batch, tensors=tensors, counts={**batch.counts, **counts})

    @override
    def forward(self, model: Any, batch: "Mapping[str, Tensor]") -> DistillationOutputs:
        main = self.base.models_to_save(model.student)["model"].module
        layers = self.captured_layers("student")
        student = run_model(model.student, main, self.base, batch, layers, self.needs_head)
        outputs = student.outputs
        teachers = self.teachers if self.losses else ()
        layers = self.captured_layers("teacher")
        state = dict(outputs.recurrent_state)
        teacher_outputs = []
        inputs = {name: tensor for name, tensor in batch.items() if name not in state}
        inputs |= outputs.inputs
        for number, teacher in enumerate(teachers):  # Each has its own state.
            output = teacher.forward(with_state(inputs, number), layers)
            teacher_outputs.append(output)
            for name, tensor in output.outputs.recurrent_state.items():
                state[f"{STATE}{number}:{name}"] = tensor
        return DistillationOutputs(
            outputs.logits,
            outputs.labels,
            state,
            student=student,
            teachers=teacher_outputs,
            module=model,
        )

    def captured_layers(self, side: Side) -> dict[str, set[int]]:
        """Return the layers of a model that losses read, by argument of ``capture``."""
        layers: dict[str, set[int]] = {}
        for loss in self.losses:
            for name, indices in loss.captured(side).items():
                layers.setdefault(name, set()).update(indices)
        return layers

    @override
    def loss(self, outputs: Outputs, batch: "Mapping[str, Tensor]") -> LossOutput:
        assert isinstance(outputs, DistillationOutputs), "forward returns it"
        base = LossOutput({})
        if self.needs_head:
            base = self.base.loss_with_auxiliary(outputs, batch)
        projections = dict(outputs.module.projections.items())
        sums = dict(base.sums) if self.base_weight else {}
        metrics = dict(base.metrics)
        row_sums = dict(base.row_sums)
        row_counts = dict(base.row_counts)
        for loss in self.losses:
            name = loss.term_name
            projection = projections.get(name)
            sums[name] = loss.total(outputs.student, outputs.teachers, projection)
            metrics |= loss.metrics(outputs.teachers)
            if SOURCE_IDS not in batch or torch.compiler.is_compiling():
                continue
            rows = loss.row_sums(outputs.student, outputs.teachers)
            if rows is not None:
                row_sums[name], row_counts[name] = rows
        return replace(base, sums=sums, metrics=metrics, row_sums=row_sums, row_counts=row_counts)

    @override
    def generated_predictions(
        self, model: Any, batch: "Mapping[str, Tensor]"
    ) -> "dict[str, Tensor]":
        if not self.needs_head:
            return {}
        return self.base.generated_predictions(model.student, batch)


def with_state(batch: "Mapping[str, Tensor]", number: int) -> "dict[str, Tensor]":
    """Return the tensors of a batch for one teacher, including only its own recurrent state."""
    prefix = f"{STATE}{number}:"
    tensors = {name: tensor for name, tensor in batch.items() if not name.startswith(STATE)}
    for name, tensor in batch.items():
        if name.startswith(prefix):
            tensors[name.removeprefix(prefix)] = tensor
    return tensors
