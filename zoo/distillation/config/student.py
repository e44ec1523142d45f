"""The student of a distillation run: its family, size and configuration."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from zoo.errors import UsageError, did_you_mean
from zoo.families.base import Family
from zoo.families.config import Config
from zoo.families.distillation import DistillationRecipe
from zoo.io.local import require_local
from zoo.plugins import all_families, get_family
from zoo.plugins.attribution import config_of_size
from zoo.training.config.init_checkpoint import config_similarity
from zoo.training.config.overrides import ConfigDict, with_location
from zoo.training.fit_model import require_fields

if TYPE_CHECKING:
    from zoo.checkpoint import Checkpoint

DEPTHS = ("num_layers", "num_decoder_layers", "decoder_layers", "lstm_layers")
SEGMENTS = "type_vocab_size"
SIZES = ("hidden_size", "num_heads", "embedding_size", "intermediate_size")
# Fields that follow from the data and the tokenizer.
DATA_FIELDS = ("labels", "problem", "vocab_size")


@dataclass(frozen=True)
class Student:
    """The student that a command names.

    Attributes:
        family: its family.
        size: the size whose recipe is used; for a pretrained student, the most similar one.
        reference: reference to a pretrained student; ``None`` for new weights.
        changes: fields that differ from the size, or from the pretrained student.
        config: its configuration.
    """

    family: Family
    size: str
    reference: str | None
    changes: ConfigDict
    config: Any


def named_student(
    name: str, teacher: "Checkpoint", *, offline: bool
) -> tuple[Family, Config | None]:
    """Return the family of a student, and the configuration of a pretrained one."""
    from zoo.conversion.cache import resolve_checkpoint

    if name in all_families():
        return get_family(name), None
    if name in teacher.family.sizes():
        return teacher.family, None
    require_local(name, "model")
    try:
        checkpoint = resolve_checkpoint(name, offline=offline)
        return checkpoint.family, checkpoint.config
    except UsageError as error:
        names = [*all_families(), *teacher.family.sizes()]
        raise UsageError(
            f"{name!r} is not a family, a size of {teacher.family.name} or a model",
            did_you_mean(name, names) or error.hint or "",
        ) from error


def find_student(
    name: str,
    family: Family,
    pretrained: Config | None,
    teacher: "Checkpoint",
    recipe: DistillationRecipe,
    fields: ConfigDict,
) -> Student:
    """Return the student that ``name`` stands for: a family, a size or a pretrained model."""
    # For a family, the student has the teacher's shape with fewer layers.
    sizes = family.sizes()
    require_fields(family, fields, "student")
    if pretrained is None and name in all_families() and "vocab_size" in fields:
        raise UsageError(
            f"student.vocab_size is {fields['vocab_size']}, but the tokenizer decides the size of "
            "the vocabulary",
            "leave it out, or name another tokenizer",
        )
    if pretrained is None and name not in all_families():
        config = _with_fields(family, config_of_size(family, name), fields)
        return Student(family, name, None, fields, config)
    config = (
        derived_config(family, teacher.config, recipe.student_depth, fields)
        if pretrained is None
        else _with_fields(family, pretrained, fields)
    )
    size = max(sizes, key=lambda key: config_similarity(sizes[key], config))
    if pretrained is not None:
        return Student(family, size, name, fields, config)
    base = msgspec.to_builtins(sizes[size])
    changes = {k: v for k, v in msgspec.to_builtins(config).items() if base.get(k) != v}
    changes = {k: v for k, v in changes.items() if k not in DATA_FIELDS}
    return Student(family, size, None, changes, _with_fields(family, sizes[size], changes))


def _with_fields(family: Family, config: Config, fields: ConfigDict) -> Any:
    try:
        return msgspec.convert({**msgspec.to_builtins(config), **fields}, family.config_type)
    except (msgspec.ValidationError, ValueError) as error:
        raise UsageError(
            with_location(error, "student"), f"set fields of {family.name} that fit together"
        ) from error


def derived_config(family: Family, teacher: Config, depth: float, fields: ConfigDict) -> Any:
    """Return the teacher's configuration with its number of layers multiplied by ``depth``."""
    base = msgspec.to_builtins(config_of_size(family, "tiny"))
    teacher_fields = msgspec.to_builtins(teacher)
    shared: ConfigDict = {}
    for name in base:
        value = teacher_fields.get(name)
        if value is not None and _fits(family, base, name, value):
            shared[name] = value
    if not shared.get(SEGMENTS):  # 0 is not a size: the teacher reads no token types.
        shared.pop(SEGMENTS, None)
    for name in DEPTHS:
        if isinstance(shared.get(name), int):
            shared[name] = max(1, round(depth * shared[name]))
    return _with_fields(family, config_of_size(family, "tiny"), {**shared, **fields})


def _fits(family: Family, base: ConfigDict, name: str, value: Any) -> bool:
    """Return whether the student's family accepts a value of the teacher's configuration."""
    try:
        msgspec.convert({**base, name: value}, family.config_type)
    except (msgspec.ValidationError, ValueError):
        return name in SIZES  # A combination of sizes may be valid.
    return True
