"""What can be set about a run, typed and strict, and where the values come from.

A family's *recipe* says what its paper did. A file, options and ``--set key=value`` change it, in
this order. What came out is written into the run, and is all that a run depends on.
"""

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import msgspec

from zoo.data.read import Reading
from zoo.errors import SourceError, UsageError, nearest
from zoo.io.limits import MAX_NEW_VOCABULARY, MAX_ROW_TOKENS, MAX_RUN_NUMBER
from zoo.training.optimizers import OptimizerSettings
from zoo.training.schedules import ScheduleSettings
from zoo.training.trees import Tree, check_keys, merged

if TYPE_CHECKING:
    from zoo.family import Family

Kind = TypeVar("Kind", bound=msgspec.Struct)
DROPOUT = "dropout"  # fields of configurations whose names end so are free in each run


class ShortSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Shorter rows for the first steps, as many of them in a step as later.

    Attributes:
        length: places in a row.
        part: of the steps.
    """

    length: int
    part: float = 0.9


class Recipe(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a family is taught, as its paper or the released code has it.

    Attributes:
        objective: what is learnt.
        options: of the objective.
        config: fields of the model's configuration that differ from the size's.
        vocab_size: tokens of a tokenizer that is trained for the run.
        length: places in a row.
        short: shorter rows for the first steps; ``None`` for one length throughout.
        batch_tokens: places in the rows of one step, over all micro-batches and ranks; where rows
            are shorter at first, of a step after that.
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
    short: ShortSettings | None = None
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
        tokenizer: a reference to a checkpoint whose tokenizer is taken, or ``train``; ``None`` for
            that of the model that the run starts with, and a new one if it starts with none.
        reading: how documents and sentences are found in files.
    """

    paths: tuple[str, ...] = ()
    validation: tuple[str, ...] = ()
    tokenizer: str | None = None
    reading: Reading = Reading()

    def __post_init__(self) -> None:
        """Refuse paths that no file can have.

        Raises:
            ValueError: one holds a NUL.
        """
        _check_names(*self.paths, *self.validation, self.tokenizer)


class StartSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a run starts with, where that is not fresh weights; see ``zoo.training.origin``.

    Attributes:
        model: a reference to the checkpoint.
        generator: a reference to that of the other network, where two are taught.
        fresh: what may be new, because no checkpoint has it, by the names of modules.
    """

    model: str
    generator: str | None = None
    fresh: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Refuse references that no model can have.

        Raises:
            ValueError: one holds a NUL.
        """
        _check_names(self.model, self.generator)


def _check_names(*names: str | None) -> None:
    for name in names:
        if name is not None and "\0" in name:
            raise ValueError(f"{name!r} is no path: it holds a NUL")


class Settings(Recipe, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A whole run. Those of ``Recipe``, and:

    Attributes:
        family: what is taught.
        size: one of the family's; with ``start``, by default the one that is most like the model.
        start: what the run starts with; ``None`` for fresh weights.
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
    start: StartSettings | None = None
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
        positive = ("batch_tokens", "steps", "log_every", "validate_every", "save_every", "keep")
        for name, most in (
            *((name, MAX_RUN_NUMBER) for name in (*positive, "micro_tokens", "validation_rows")),
            ("length", MAX_ROW_TOKENS),
            ("vocab_size", MAX_NEW_VOCABULARY),
        ):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} is {value}, which is not positive")
            if value is not None and value > most:
                raise ValueError(f"{name} is {value}, and at most {most:,} is accepted")
        for name in ("batch_tokens", "micro_tokens"):
            places = getattr(self, name)
            if places is not None and places < self.length:
                raise ValueError(f"{name} is {places}, less than a row of {self.length}")
        if self.average is not None and not 0 <= self.average < 1:
            raise ValueError(f"average is {self.average}, which is not in [0, 1)")
        if not -(2**63) <= self.seed < 2**64:
            raise ValueError(f"seed is {self.seed}, which is more than 64 bits hold")
        if self.short is not None and not 0 < self.short.length < self.length:
            raise ValueError(f"short.length is {self.short.length}, not below {self.length}")
        if self.short is not None and not 0 < self.short.part < 1:
            raise ValueError(f"short.part is {self.short.part}, which is not between 0 and 1")

    @property
    def rows(self) -> int:
        """Rows in a step."""
        return self.batch_tokens // self.length

    @property
    def short_steps(self) -> int:
        """How many of the first steps have shorter rows; the last one never does."""
        return 0 if self.short is None else min(round(self.short.part * self.steps), self.steps - 1)

    def micro_rows(self, length: int) -> int:
        """Rows of some length that a device computes at once."""
        return self.rows if self.micro_tokens is None else self.micro_tokens // length


def gather(
    tree: Mapping[str, Any], changes: Mapping[str, Any], *, offline: bool = False
) -> Settings:
    """Put together what a recipe, a file and options say; later ones count.

    Args:
        tree: of a file, or the family's name alone.
        changes: of options and assignments.
        offline: open no connection, where the run starts with a model.

    Raises:
        UsageError: an unknown family, size or setting, or a value that is wrong.
        SourceError, VerificationError: a model to start with is missing or damaged.
    """
    from zoo.plugins import get_family

    asked = merged(tree, changes)
    if not isinstance(asked.get("family"), str):
        raise UsageError("the settings name no family", "name one as `family`")
    family = get_family(asked["family"])
    sizes = family.sizes()
    started = _started(family, asked, offline=offline) if asked.get("start") else None
    size = asked.get("size", started or "tiny")
    _check_kinds(asked)
    if size not in sizes:
        raise UsageError(
            f"{family.name} has no size {size!r}",
            nearest(str(size), list(sizes)) or f"it has {', '.join(sizes)}",
        )
    recipe = msgspec.to_builtins(family.recipe(size))
    if started is not None:  # the model's configuration stays; what is dropped is up to the run
        recipe["config"] = {k: v for k, v in recipe["config"].items() if k.endswith(DROPOUT)}
        asked = merged(asked, {"size": size})
    if asked.get("length", recipe["length"]) <= (recipe["short"] or {}).get("length", 0):
        recipe["short"] = None  # all rows are that short
    if asked.get("objective", recipe["objective"]) != recipe["objective"]:
        recipe["options"] = {}  # they are the other objective's
    return typed(merged(recipe, asked))


def _check_kinds(tree: Tree) -> None:
    """Check the settings that are looked at before all are.

    Raises:
        UsageError: one has another type.
    """
    for name, kind in (("size", str), ("objective", str), ("length", int)):
        if name in tree and not isinstance(tree[name], kind):
            raise UsageError(f"settings: {name} is {tree[name]!r}, which is not {_TYPES[kind]}")


_TYPES = {str: "text", int: "a number"}


@contextlib.contextmanager
def naming(file: Path | None) -> Iterator[None]:
    """Let errors about settings name the file that they come from, if there is one."""
    try:
        yield
    except (UsageError, SourceError) as error:
        if file is None:
            raise
        what = f"{file}: {error.what.removeprefix('settings: ')}"
        raise type(error)(what, error.remedy) from error


def _started(family: "Family", asked: Tree, *, offline: bool) -> str:
    """Return the size that is most like the model that a run starts with.

    Raises:
        UsageError: the size that was asked for is less like it, or the model is another family's.
    """
    from zoo.training.origin import find, likeness
    from zoo.training.taking import unlike

    check_keys(asked, Settings, "", "settings")
    start = _converted(asked["start"], StartSettings, "settings: start")
    config, sizes = find(start.model, family, offline=offline).config, family.sizes()
    alike = {name: likeness(each, config) for name, each in sizes.items()}
    best = max(alike, key=alike.__getitem__)
    size = asked.get("size", best)
    if size in sizes and alike[size] < alike[best]:
        found = unlike(sizes[size], config)
        raise UsageError(
            f"size is {size}, and {start.model} is most like {best}: {', '.join(found)}",
            "leave the size out",
        )
    return best


def typed(tree: Tree, where: str = "settings") -> Settings:
    """Check nested settings.

    Raises:
        UsageError: a key is unknown (the nearest is named), or a value is wrong.
    """
    check_keys(tree, Settings, "", where)
    return _converted(tree, Settings, where)


def _converted(tree: Any, kind: type[Kind], where: str) -> Kind:
    try:
        return msgspec.convert(tree, kind)
    except (msgspec.ValidationError, ValueError, TypeError) as error:
        raise UsageError(f"{where}: {error}") from error
