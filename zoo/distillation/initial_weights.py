"""Initial weights of a student from layers of its teacher."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from zoo.distillation.layer_maps import resolve_layers
from zoo.errors import UsageError
from zoo.families.distillation import LayerMap
from zoo.finetuning.heads import HEAD

STACKS = ("layers", "decoder.layers")  # The lists of layers that ``Family.model`` describes.


@torch.no_grad()
def copy_teacher_weights(
    student: nn.Module,
    teacher: nn.Module,
    layers: LayerMap,
    label_order: tuple[int, ...] | None = None,
) -> list[str]:
    """Copy a teacher's layers, embeddings and head into a student; return what stays new."""
    sources = teacher_weights(student, teacher, layers)
    if label_order is not None:
        sources |= reordered_rows(teacher, sources, label_order)
    target = student.state_dict(keep_vars=True)
    for name, value in sources.items():
        target[name].copy_(value)
    ids = {id(target[name]) for name in sources}  # A tied parameter has several names.
    return [name for name, tensor in target.items() if id(tensor) not in ids]


def teacher_weights(student: nn.Module, teacher: nn.Module, layers: LayerMap) -> dict[str, Tensor]:
    """Return name in the student -> tensor of the teacher that ``copy_teacher_weights`` copies."""
    source = teacher.state_dict()
    target = student.state_dict(keep_vars=True)
    layer_prefixes = tuple(f"{stack}." for stack in STACKS)
    values: dict[str, Tensor] = {}
    for name, tensor in target.items():
        if name.startswith(layer_prefixes):
            continue
        # A parameter outside of the layers, such as a pooler's, may exist in only one of two
        # families.
        if name in source and source[name].shape == tensor.shape:
            values[name] = source[name]
    for stack in STACKS:
        try:
            student_layers: Any = student.get_submodule(stack)
            teacher_layers: Any = teacher.get_submodule(stack)
        except AttributeError:  # One of the models has no such list.
            continue
        pairs = resolve_layers(layers, len(student_layers), len(teacher_layers))
        for student_layer, teacher_layer in pairs:
            values |= _layer_weights(
                student, teacher, f"{stack}.{student_layer}", f"{stack}.{teacher_layer}"
            )
    return values


def reordered_rows(
    teacher: nn.Module, sources: Mapping[str, Tensor], label_order: tuple[int, ...]
) -> dict[str, Tensor]:
    """Return the tensors of a head's last linear map, with the rows in the student's order."""
    if not any(_is_in_head(name) for name in sources):
        return {}
    last_map = ""
    out_features = 0
    for name, module in teacher.named_modules():
        if isinstance(module, nn.Linear) and _is_in_head(name):
            last_map = name
            out_features = module.out_features
    if out_features != len(label_order):
        raise UsageError(
            "the teacher has the student's labels in another order, and its head does not end in "
            "a linear map to them",
            "--set distillation.init_layers=null starts with new weights",
        )
    names = [f"{last_map}.weight", f"{last_map}.bias"]
    return {name: sources[name][list(label_order)] for name in names if name in sources}


def _is_in_head(name: str) -> bool:
    return name.partition(".")[0] == HEAD


def _layer_weights(
    student: nn.Module, teacher: nn.Module, student_layer: str, teacher_layer: str
) -> dict[str, Tensor]:
    """Return the tensors of one of the teacher's layers by their names in the student."""
    target = student.get_submodule(student_layer).state_dict(keep_vars=True)
    source = teacher.get_submodule(teacher_layer).state_dict()
    for name in {*target, *source}:
        student_shape = _shape(target, name)
        teacher_shape = _shape(source, name)
        if student_shape != teacher_shape:
            raise UsageError(
                f"the student cannot start from the teacher's layers: {student_layer}.{name} is "
                f"{student_shape or 'absent'}, and the teacher's is {teacher_shape or 'absent'}",
                "--set distillation.init_layers=null starts with new weights",
            )
    return {f"{student_layer}.{name}": source[name] for name in target}


def _shape(state: Mapping[str, Tensor], name: str) -> tuple[int, ...] | None:
    return tuple(state[name].shape) if name in state else None
