"""What can be set about a run, typed and strict, and where the values come from.

A family's *recipe* says what its paper did. A file, options and ``--set key=value`` change it, in
this order. What came out is written into the run, and is all that a run depends on.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

import msgspec

from zoo.data.read import Reading
from zoo.errors import UsageError, nearest
from zoo.training.optimizers import OptimizerSettings
from zoo.training.schedules import ScheduleSettings

Tree = dict[str, Any]


class Recipe(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a family is taught, as its paper or the released code has it.

    Attributes:
        objective: what is learnt.
        options: of the objective.
        config: fields of the model's configuration that differ from the size's.
        vocab_size: tokens of a tokenizer that is trained for the run.
        length: places in a row.
        batch_tokens: places in the rows of one step, over all micro-batches and ranks.
        steps: how often weights are updated.
        optimizer: see there.
        schedule: of the learning rate.
        average: decay of a moving average of the weights, which is then what a run leaves
            behind; ``None`` for no average.
    """

    objective: str
    options: dict[str, Any] = msgspec.field(default_factory=dict)
    config: dict[str, Any] = msgspec.field(default_factory=dict)
    vocab_size: int | None = None
    length: int = 128
    batch_tokens: int = 4096
    steps: int = 1000
    optimizer: OptimizerSettings
    schedule: ScheduleSettings = ScheduleSettings()
    average: float | None = None


def brief(
    objective: str,
    *,
    learning_rate: float,
    betas: tuple[float, float] = (0.9, 0.999),
    **changes: Any,
) -> Recipe:
    """Return a recipe for a few minutes on two cores, with a corpus like the package's.

    Args:
        objective: what is learnt.
        learning_rate: of AdamW.
        betas: of AdamW.
        **changes: what else differs from the usual, by the names of ``Recipe``.
    """
    usual: Tree = {
        "vocab_size": 4096,
        "length": 128,
        "batch_tokens": 4096,
        "steps": 500,
        "optimizer": OptimizerSettings(learning_rate=learning_rate, betas=betas, weight_decay=0.01),
        "schedule": ScheduleSettings(warmup=50),
    }
    return Recipe(objective=objective, **{**usual, **changes})


class DataSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is read.

    Attributes:
        paths: files, folders, patterns, or one corpus that was built before; none for the small
            corpus of the package.
        validation: files to hold out; none for a part of ``paths``.
        tokenizer: a reference to a checkpoint whose tokenizer is taken, or ``train``.
        reading: how documents and sentences are found in files.
    """

    paths: tuple[str, ...] = ()
    validation: tuple[str, ...] = ()
    tokenizer: str = "train"
    reading: Reading = Reading()


class Settings(Recipe, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A whole run. Those of ``Recipe``, and:

    Attributes:
        family: what is taught.
        size: one of the family's.
        data: what is read.
        seed: of everything that is drawn.
        micro_tokens: places that a device computes at once; a step with more is accumulated.
            ``None`` for all of them.
        precision: what products are computed in; weights are float32 always. ``auto`` is
            bfloat16 on CUDA, where the device has it, and float32 elsewhere.
        compile: whether ``torch.compile`` makes kernels of the model.
        recompute: whether activations inside blocks are computed again instead of kept.
        shard: whether weights and optimizer are split over ranks instead of copied.
        log_every: steps between lines of the log.
        validate_every: steps between validations.
        validation_rows: rows that each looks at.
        save_every: steps between checkpoints.
        keep: how many of the last checkpoints are kept, beside the best.
    """

    family: str
    size: str = "tiny"
    data: DataSettings = DataSettings()
    seed: int = 0
    micro_tokens: int | None = None
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    compile: bool = False
    recompute: bool = False
    shard: bool = False
    log_every: int = 10
    validate_every: int = 100
    validation_rows: int = 64
    save_every: int = 100
    keep: int = 2

    def __post_init__(self) -> None:
        """Refuse what cannot be run.

        Raises:
            ValueError: a number is out of its range.
        """
        positive = ("length", "batch_tokens", "steps", "log_every", "validate_every", "save_every")
        for name in (*positive, "keep", "validation_rows"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}, which is not positive")
        for name in ("batch_tokens", "micro_tokens"):
            places = getattr(self, name)
            if places is not None and places < self.length:
                raise ValueError(f"{name} is {places}, less than a row of {self.length}")

    @property
    def rows(self) -> int:
        """Rows in a step."""
        return self.batch_tokens // self.length

    @property
    def micro_rows(self) -> int:
        """Rows that a device computes at once."""
        return self.rows if self.micro_tokens is None else self.micro_tokens // self.length


def gather(tree: Mapping[str, Any], changes: Mapping[str, Any]) -> Settings:
    """Put together what a recipe, a file and options say; later ones count.

    Args:
        tree: of a file, or the family's name alone.
        changes: of options and assignments.

    Raises:
        UsageError: an unknown family, size or setting, or a value that is wrong.
    """
    from zoo.plugins import get_family

    asked = merged(tree, changes)
    if not isinstance(asked.get("family"), str):
        raise UsageError("the settings name no family", "name one as `family`")
    family = get_family(asked["family"])
    size = asked.get("size", "tiny")
    sizes = family.sizes()
    if size not in sizes:
        raise UsageError(
            f"{family.name} has no size {size!r}",
            nearest(str(size), list(sizes)) or f"it has {', '.join(sizes)}",
        )
    recipe = msgspec.to_builtins(family.recipe(size))
    if asked.get("objective", recipe["objective"]) != recipe["objective"]:
        recipe["options"] = {}  # they are the other objective's
    return typed(merged(recipe, asked))


def merged(*trees: Mapping[str, Any]) -> Tree:
    """Return nested settings in which later ones take the place of earlier ones."""
    found: Tree = {}
    for tree in trees:
        for key, value in tree.items():
            both = isinstance(value, Mapping) and isinstance(found.get(key), Mapping)
            found[key] = merged(found[key], value) if both else value
    return found


def assignment(text: str) -> Tree:
    """Read ``key=value`` of ``--set``: dots go into nested settings, values are YAML.

    Raises:
        UsageError: it is not of that form.
    """
    import yaml

    key, equals, value = text.partition("=")
    if not equals or not key:
        raise UsageError(f"--set {text!r} is not key=value", "such as --set optimizer.clip=0.5")
    try:
        found = yaml.safe_load(value)
    except yaml.YAMLError as error:
        raise UsageError(f"--set {text!r}: the value is not YAML") from error
    for part in reversed(key.split(".")):
        found = {part: found}
    return found  # type: ignore[no-any-return]


def read_file(path: Path) -> Tree:
    """Read a file of settings.

    Raises:
        UsageError: it cannot be read, or is no YAML mapping.
    """
    import yaml

    try:
        found = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} cannot be read: {error}") from error
    except yaml.YAMLError as error:
        raise UsageError(f"{path} is not YAML: {' '.join(str(error).split())}") from error
    if not isinstance(found, dict):
        raise UsageError(f"{path} is not a table of settings", "name one as `family`")
    return found


def typed(tree: Tree, where: str = "settings") -> Settings:
    """Check nested settings.

    Raises:
        UsageError: a key is unknown (the nearest is named), or a value is wrong.
    """
    _check_keys(tree, Settings, "", where)
    try:
        return msgspec.convert(tree, Settings)
    except (msgspec.ValidationError, ValueError, TypeError) as error:
        raise UsageError(f"{where}: {error}") from error


def _check_keys(tree: Tree, kind: Any, path: str, where: str) -> None:
    fields = {field.name: field.type for field in msgspec.structs.fields(kind)}
    for key, value in tree.items():
        if key not in fields:
            raise UsageError(
                f"{where}: there is no setting {path}{key}",
                nearest(str(key), list(fields)) or f"there are {', '.join(fields)}",
            )
        inner = fields[key]
        nested = isinstance(inner, type) and issubclass(inner, msgspec.Struct)
        if nested and isinstance(value, dict):
            _check_keys(value, inner, f"{path}{key}.", where)


def differences(one: Tree, other: Tree, path: str = "") -> Iterator[str]:
    """Name the settings that differ: ``optimizer.clip: 1.0 and 0.5``."""
    for key in sorted({*one, *other}):
        a, b = one.get(key), other.get(key)
        if isinstance(a, dict) and isinstance(b, dict):
            yield from differences(a, b, f"{path}{key}.")
        elif a != b:
            yield f"{path}{key}: {a!r} and {b!r}"
