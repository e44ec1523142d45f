"""Initial weights of a student from layers of its teacher."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from zoo.distillation.layer_maps import resolve_layers
from zoo.errors import UsageError
from zoo.families.distillation import LayerMap
from zoo.finetuning.heads import HEAD

STACKS = ("layers", "decoder.layers")  # see ``Family.model``


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
    ids = {id(target[name]) for name in sources}  # a tied parameter has several names
    return [name for name, tensor in target.items() if id(tensor) not in ids]


def teacher_weights(student: nn.Module, teacher: nn.Module, layers: LayerMap) -> dict[str, Tensor]:
    """Return name in the student -> tensor of the teacher that ``copy_teacher_weights`` copies."""
    source = teacher.state_dict()
    target = student.state_dict(keep_vars=True)
    # some parameters outside of the layers, such as poolers, may exist in only one of two families
    values = {
        name: source[name]
        for name, tensor in target.items()
        if not name.startswith(tuple(f"{stack}." for stack in STACKS))
        and name in source
        and source[name].shape == tensor.shape
    }
    for stack in STACKS:
        try:
            depths = [
                len(model.get_submodule(stack))  # type: ignore[arg-type]
                for model in (student, teacher)
            ]
        except AttributeError:  # one of the models has no such list
            continue
        for first, second in resolve_layers(layers, *depths):
            values |= _layer_weights(student, teacher, f"{stack}.{first}", f"{stack}.{second}")
    return values


def reordered_rows(
    teacher: nn.Module, sources: Mapping[str, Tensor], label_order: tuple[int, ...]
) -> dict[str, Tensor]:
    """Return the tensors of a head's last linear map, with the rows in the student's order."""
    copied = [name for name in sources if name.partition(".")[0] == HEAD]
    maps = [
        (name, module)
        for name, module in teacher.named_modules()
        if isinstance(module, nn.Linear) and name.partition(".")[0] == HEAD
    ]
    if copied and (not maps or maps[-1][1].out_features != len(label_order)):
        raise UsageError(
            "the teacher has the student's labels in another order, and its head does not end in "
            "a linear map to them",
            "--set distillation.init_layers=null starts with new weights",
        )
    names = [f"{maps[-1][0]}.{kind}" for kind in ("weight", "bias")] if copied else []
    return {name: sources[name][list(label_order)] for name in names if name in sources}


def _layer_weights(
    student: nn.Module, teacher: nn.Module, first: str, second: str
) -> dict[str, Tensor]:
    """Return the tensors of one of the teacher's layers by their names in the student."""
    target = student.get_submodule(first).state_dict(keep_vars=True)
    source = teacher.get_submodule(second).state_dict()
    for name in {*target, *source}:
        shapes = [tuple(state[name].shape) if name in state else None for state in (target, source)]
        if shapes[0] != shapes[1]:
            raise UsageError(
                f"the student cannot start from the teacher's layers: {first}.{name} is "
                f"{shapes[0] or 'absent'}, and the teacher's is {shapes[1] or 'absent'}",
                "--set distillation.init_layers=null starts with new weights",
            )
    return {f"{first}.{name}": source[name] for name in target}
