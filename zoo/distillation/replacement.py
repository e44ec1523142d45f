"""Progressive module replacing (Xu et al. 2020, arXiv:2002.02925)."""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from zoo.data.rng import generator
from zoo.distillation.objective import Distillation, DistillationOutputs
from zoo.distillation.teachers.teacher import Teacher
from zoo.errors import UsageError
from zoo.families.base import Family
from zoo.families.distillation import Replacement
from zoo.nn.capture import layers_in_order
from zoo.objectives.base import LossOutput, Outputs
from zoo.objectives.replaced_token_detection import zero_of
from zoo.overrides import override

if TYPE_CHECKING:
    from torch import Tensor

LAYERS = "layers"


class LayerGroup(nn.Module):
    """Successive layers of a teacher that run in place of a student's layer."""

    def __init__(self, layers: Sequence[nn.Module]) -> None:
        super().__init__()
        self._group = tuple(layers)  # A tuple keeps them out of the student's parameters.

    def forward(self, hidden: "Tensor", *context: Any) -> "Tensor":
        """Return the output of the last layer; takes the arguments of a layer."""
        for layer in self._group:
            hidden = layer(hidden, *context)
        return hidden


class ModuleReplacing(Distillation):
    """The student's objective, computed by a mix of layers of both models.

    Each layer of the student stands for a group of successive layers of the teacher. In each
    training step, a layer replaces its group with a probability that rises to 1; from then on,
    only the student runs. As in the released code (run_glue.py), only the student's layers are
    trained, and layers that were not drawn in a step get gradients of zero. Unlike the released
    code, the teacher's layers run without dropout, and one draw counts for a whole step.
    """

    def __init__(self, *args: Any, replacement: Replacement, seed: int) -> None:
        super().__init__(*args)
        self.replacement = replacement
        self.seed = seed
        self.uses_all_parameters = True
        self._step = 0

    def probability(self, step: int) -> float:
        """Return the probability that a layer replaces its group in a step, counted from 0."""
        return min(1.0, self.replacement.rate + self.replacement.increment * step)

    def replaced(self, step: int, layers: int) -> list[bool]:
        """Return which of the student's layers run in a step; a function of seed and step."""
        draws = generator(self.seed, "replacement", step).random(layers)
        return [bool(draw < self.probability(step)) for draw in draws]

    @override
    def begin_step(self, model: Any, step: int, max_steps: int) -> None:
        super().begin_step(model, step, max_steps)
        self._step = step

    @override
    def forward(self, model: Any, batch: "Mapping[str, Tensor]") -> DistillationOutputs:
        """Run the student; in training, the teacher's layers replace some of its layers."""
        if not model.training:
            return super().forward(model, batch)
        main = self.base.models_to_save(model.student)["model"].module
        device = next(main.parameters()).device
        with mixed_layers(main, self.teachers[0], self._step, self, device):
            return super().forward(model, batch)

    @override
    def loss(self, outputs: Outputs, batch: "Mapping[str, Tensor]") -> LossOutput:
        output = super().loss(outputs, batch)
        assert isinstance(outputs, DistillationOutputs), "forward returns it"
        if outputs.module.training:
            main = self.base.models_to_save(outputs.module.student)["model"].module
            name = next(iter(output.sums))
            # Layers that were not drawn get a gradient by it.
            output.sums[name] = output.sums[name] + zero_of(main.get_submodule(LAYERS))
        return output


@contextlib.contextmanager
def mixed_layers(
    student: nn.Module,
    teacher: Teacher,
    step: int,
    objective: ModuleReplacing,
    device: torch.device,
) -> Iterator[None]:
    """Replace the student's layers that are not drawn by groups of the teacher's layers."""
    teacher.model.to(device)
    student_layers: Any = student.get_submodule(LAYERS)
    teacher_layers: Any = teacher.model.get_submodule(LAYERS)
    size = len(teacher_layers) // len(student_layers)
    is_drawn = objective.replaced(step, len(student_layers))
    mixed = nn.ModuleList()
    for number, layer in enumerate(student_layers):
        if is_drawn[number]:
            mixed.append(layer)
        else:
            group = teacher_layers[number * size : (number + 1) * size]
            mixed.append(LayerGroup(group))
    setattr(student, LAYERS, mixed)
    try:
        yield
    finally:
        setattr(student, LAYERS, student_layers)


def require_replaceable(family: Family, student: nn.Module, teacher: Teacher) -> None:
    """Check that a student's layers can replace groups of a teacher's layers."""
    if family.name != teacher.checkpoint.family.name:
        raise UsageError(
            "a student's layers can only replace layers of a teacher of the same family",
            "for models of two families, choose another recipe",
        )
    if teacher.dtype != torch.float32:
        raise UsageError(
            f"layers in {str(teacher.dtype).removeprefix('torch.')} cannot run between the "
            "student's layers",
            "--set distillation.teacher_dtype=float32",
        )
    sizes = []
    for model in (student, teacher.model):
        is_stack = hasattr(model, LAYERS) and not hasattr(model, "decoder")
        layers = layers_in_order(model) if is_stack else []
        # A layer that runs several times is only one child.
        if not is_stack or layers != list(model.get_submodule(LAYERS).children()):
            raise UsageError("the models are not plain stacks of layers", "choose another recipe")
        sizes.append(len(layers))
    if not 0 < sizes[0] <= sizes[1] or sizes[1] % sizes[0]:
        raise UsageError(
            f"the teacher's {sizes[1]} layers cannot be split into {sizes[0]} groups",
            "--set student.num_layers=N takes a divisor",
        )


def train_only_layers(model: nn.Module, student: nn.Module) -> None:
    """Freeze everything but the student's layers; layers that are frozen already stay so."""
    trained = {id(parameter) for parameter in student.get_submodule(LAYERS).parameters()}
    for parameter in model.parameters():
        parameter.requires_grad_(parameter.requires_grad and id(parameter) in trained)
