"""Types of options whose values a shell completes: names of tasks, sizes, settings, columns, ..."""

import contextlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import UnionType
from typing import TYPE_CHECKING, Any, Literal, Union, get_args, get_origin

import click

from zoo.io.local import require_local
from zoo.overrides import override

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from zoo.families.base import Family
    from zoo.families.tasks import Part

Names = Callable[[click.Context], Iterable[str]]
# command -> module and structs of its settings
SETTINGS = {
    "pretrain": ("zoo.training.config.schema", ("TrainConfig",)),
    "examples": ("zoo.training.config.schema", ("TrainConfig",)),
    "accumulation": ("zoo.training.config.schema", ("TrainConfig",)),
    "resume": ("zoo.training.config.schema", ("TrainConfig",)),
    "finetune": ("zoo.training.config.finetune", ("FineTuneConfig",)),
    "distill": ("zoo.training.config.distill", ("DistillTextConfig", "DistillTaskConfig")),
}
# Setting with the options of an objective or task -> the setting that names it.
OPTION_TABLES = {
    "objective_args": "objective",
    "seq_len_warmup.objective_args": "seq_len_warmup.objective",
    "task_args": "task",
}
# Arguments and options that may name a family, or a model of one.
MODELS = ("family_or_file", "model", "family", "ref", "source", "teacher")
TABLES = ("source", "train", "eval_data")  # options that may name a table


class NamesType(click.types.StringParamType):
    """Text whose usual values a shell completes; any other is also accepted."""

    def __init__(self, names: Names, *, files: bool = False) -> None:
        self._names = names
        self._files = files

    @override
    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if self._files:
            require_local(value, "file")
        return super().convert(value, param, ctx)

    @override
    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> "list[CompletionItem]":
        from click.shell_completion import CompletionItem

        matches = []
        for name in dict.fromkeys(self.names(ctx, incomplete)):
            if name.startswith(incomplete):
                matches.append(CompletionItem(name))
        if not matches and self._files:
            return [CompletionItem(incomplete, type="file")]
        return matches

    def names(self, ctx: click.Context, incomplete: str) -> Iterable[str]:
        """Return the usual values; a subclass may look at what was typed of the value."""
        return self._names(ctx)


class AssignmentType(NamesType):
    """``KEY=VALUE`` of a setting: a shell completes first the key and then its values."""

    @override
    def names(self, ctx: click.Context, incomplete: str) -> Iterable[str]:
        key, separator, _ = incomplete.partition("=")
        if separator:
            return [f"{key}={value}" for value in setting_values(ctx, key)]
        names = [*super().names(ctx, incomplete)]
        for table in OPTION_TABLES:
            if incomplete.startswith(table):  # Objectives and tasks are imported for their options.
                names += table_options(ctx, table)
        return names


def tasks(ctx: click.Context) -> Iterator[str]:
    """Yield the names, verbs and synonyms of the tasks that a command and the model have."""
    from zoo.plugins.tasks import completed_names

    part: Part = "evaluate" if ctx.info_name == "eval" else "train"
    yield from completed_names(part, set(heads(ctx)))
    if part == "train":
        from zoo.data.readers.glue import GLUE

        yield from (f"glue/{name}" for name in GLUE)


def heads(ctx: click.Context) -> Iterator[str]:
    """Yield the heads of the family that is named, or of all."""
    for family in _named(ctx):
        yield from family.heads()


def adapters(ctx: click.Context) -> Iterator[str]:
    """Yield the methods of adapters."""
    from zoo.adapted_models.registry import ADAPTERS

    yield from ADAPTERS.names()


def suites(ctx: click.Context) -> Iterator[str]:
    """Yield the names of the suites."""
    from zoo.plugins.suites import suite_names

    yield from suite_names()


def families(ctx: click.Context) -> Iterator[str]:
    """Yield the names of the families."""
    from zoo.plugins import all_families

    yield from all_families()


def sizes(ctx: click.Context) -> Iterator[str]:
    """Yield the sizes of the family that is named, or of all."""
    for family in _named(ctx):
        yield from family.sizes()


def objectives(ctx: click.Context) -> Iterator[str]:
    """Yield the objectives that the family which is named can learn, or else all objectives."""
    from zoo.errors import PluginError
    from zoo.objectives import OBJECTIVES, supports_objective
    from zoo.plugins import all_families
    from zoo.plugins.entry_point_objects import usable

    shared_names = [*OBJECTIVES, *usable("objectives", OBJECTIVES)]
    named_families = _families_named(ctx)
    if not named_families:
        yield from shared_names
    for family in named_families or all_families().values():
        yield from family.objectives  # Only this family has them: none is imported.
    for family in named_families:
        config = next(iter(family.sizes().values()), None)
        for name in shared_names:
            with contextlib.suppress(PluginError):  # An objective that cannot be imported.
                if supports_objective(family, config, name):
                    yield name


def dtypes(ctx: click.Context) -> Iterator[str]:
    """Yield the dtypes of stored weights, the precisions of a target, or a backend's dtypes."""
    from zoo.conversion.dtypes import NAMES
    from zoo.exporting.targets import ONNX, target_class, target_names
    from zoo.io.tensors.formats import DTYPE_NAMES

    stored = [DTYPE_NAMES[code] for code in dict.fromkeys(NAMES.values())]
    if ctx.info_name == "convert":
        yield from stored
        return
    backends = ctx.params.get("backend") or ()
    if ctx.info_name == "export":
        backends = ctx.params.get("to") or ONNX
    if isinstance(backends, str):
        backends = [backends]
    for backend in backends or ["auto"]:
        if backend in target_names():
            target = target_class(backend)
            yield from [*target.precisions, *target.precision_synonyms]
            continue
        yield from stored
        if backend != "cuda":
            yield "int8"
        if backend == "auto":
            yield "int4"


def devices(ctx: click.Context) -> Iterator[str]:
    """Yield the usual devices."""
    yield from ("cpu", "cuda")


def loggers(ctx: click.Context) -> Iterator[str]:
    """Yield the loggers of training runs."""
    from zoo.plugins.registry import logger_names

    yield from logger_names()


def model_types(ctx: click.Context) -> Iterator[str]:
    """Yield the model types of the families."""
    from zoo.plugins import all_families

    for family in all_families().values():
        yield from family.model_types


def presets(ctx: click.Context) -> Iterator[str]:
    """Yield the presets of fine-tuning."""
    for family in _named(ctx):
        yield from family.presets()


def recipes(ctx: click.Context) -> Iterator[str]:
    """Yield the recipes of distillation."""
    from zoo.distillation.recipes import all_recipes

    for family in _named(ctx):
        yield from all_recipes(family)


def settings(ctx: click.Context) -> Iterator[str]:
    """Yield the settings of a run at any depth, as ``--set`` takes them."""
    import importlib

    from zoo.training.config.synonyms import setting_paths

    module, names = SETTINGS[ctx.info_name or ""]
    structs: Any = importlib.import_module(module)
    for name in names:
        yield from (f"{path}=" for path in setting_paths(getattr(structs, name)))
    for family in _named(ctx):
        for config in list(family.sizes().values())[:1]:
            yield from (f"config.{name}=" for name in config.__struct_fields__)


def table_options(ctx: click.Context, table: str) -> Iterator[str]:
    """Yield the options of the objectives or tasks that a command may train.

    Args:
        ctx: the command line so far.
        table: the setting that has the options, such as ``objective_args``.
    """
    from zoo.training.config.synonyms import setting_paths

    for options_type in _option_types(ctx, table):
        for path in setting_paths(options_type):
            yield f"{table}.{path}="


def _option_types(ctx: click.Context, table: str) -> Iterator[Any]:
    """Yield the types of the options in a table: of what is named, or else of all candidates."""
    names = _names_given(ctx, OPTION_TABLES[table])
    if table == "task_args":
        return _task_option_types(ctx, names)
    return _objective_option_types(ctx, names)


def _objective_option_types(ctx: click.Context, names: list[str]) -> Iterator[Any]:
    """Yield the types of the options of some objectives, by default of those of the family."""
    from zoo.errors import PluginError, UsageError
    from zoo.objectives import OBJECTIVES
    from zoo.objectives.base import Objective
    from zoo.plugins.entry_point_objects import import_class

    locations = dict(OBJECTIVES)
    for family in _named(ctx):
        locations.update(family.objectives)
    for name in names or objectives(ctx):
        # An objective that does not exist, or cannot be imported, has no options.
        with contextlib.suppress(PluginError, UsageError):
            yield import_class("objectives", name, locations, Objective).options_type


def _task_option_types(ctx: click.Context, names: list[str]) -> Iterator[Any]:
    """Yield the types of the options of some tasks, by default of those that the model has."""
    from zoo.errors import PluginError, UsageError
    from zoo.plugins.tasks import training_task

    for name in names or tasks(ctx):
        # A task that does not exist, or cannot be imported, has no options.
        with contextlib.suppress(PluginError, UsageError):
            yield training_task(name).options_type


def _names_given(ctx: click.Context, setting: str) -> list[str]:
    """Return the values that a command line gives a setting."""
    names = []
    if ctx.params.get(setting) is not None:
        names.append(str(ctx.params[setting]))
    for assignment in ctx.params.get("assignments") or ():
        key, _, value = assignment.partition("=")
        if key == setting and value:
            names.append(value)
    return names


def setting_values(ctx: click.Context, path: str) -> Iterator[str]:
    """Yield the values of a setting that has a choice of them."""
    import importlib

    from zoo.training.config.synonyms import field_types

    table, _, option = path.rpartition(".")
    if table in OPTION_TABLES:
        for options_type in _option_types(ctx, table):
            for field_type in field_types(options_type, option):
                yield from _choices(field_type)
    if path in NAMED_VALUES:
        yield from NAMED_VALUES[path](ctx)
    module, names = SETTINGS[ctx.info_name or ""]
    structs: Any = importlib.import_module(module)
    for name in names:
        for field_type in field_types(getattr(structs, name), path):
            yield from _choices(field_type)
    table, _, field = path.partition(".")
    if table == "config":
        for family in _named(ctx):
            for config in list(family.sizes().values())[:1]:
                for field_type in field_types(type(config), field):
                    yield from _choices(field_type)


def _choices(field_type: Any) -> Iterator[str]:
    """Yield the values of a type as ``--set`` takes them: of a literal or a bool."""
    if field_type is bool:
        yield from ("true", "false")
    elif get_origin(field_type) is Literal:
        yield from map(str, get_args(field_type))
    elif get_origin(field_type) in (Union, UnionType):
        for member in get_args(field_type):
            yield from _choices(member)


def optimizers(ctx: click.Context) -> Iterator[str]:
    """Yield the optimizers."""
    from zoo.training.optim.optimizers import OPTIMIZERS

    yield from OPTIMIZERS.names()


def prompts(ctx: click.Context) -> Iterator[str]:
    """Yield the prompts of the converted models that a command names."""
    from zoo.conversion.local_family import converted_checkpoint

    for name in _model_names(ctx):
        checkpoint = converted_checkpoint(name)
        if checkpoint is not None and checkpoint.model.pooling is not None:
            yield from checkpoint.model.pooling.prompts


def splits(ctx: click.Context) -> Iterator[str]:
    """Yield the splits of the BEIR folders that a command names."""
    for folder in ctx.params.get("eval_data") or ():
        for path in sorted(Path(folder).expanduser().glob("qrels/*.tsv")):
            yield path.stem


def columns(ctx: click.Context) -> Iterator[str]:
    """Yield the columns of the tables that were named before."""
    from zoo.data.readers.tables import column_names
    from zoo.data.readers.text_io import split_name

    for option in TABLES:
        paths = ctx.params.get(option) or ()
        if isinstance(paths, str | Path):
            paths = [paths]
        for path in paths:
            file = Path(split_name(str(path))[1]).expanduser()
            if file.is_file():
                yield from column_names(file)


def _named(ctx: click.Context) -> "Iterator[Family]":
    """Yield the families of the models that a command names, or else all families."""
    from zoo.plugins import all_families

    yield from _families_named(ctx) or all_families().values()


def _families_named(ctx: click.Context) -> "list[Family]":
    """Return the families of the models that a command names."""
    from zoo.conversion.local_family import local_family

    families = []
    for name in _model_names(ctx):
        family = local_family(name)
        if family is not None:
            families.append(family)
    return families


def _model_names(ctx: click.Context) -> list[str]:
    """Return the references to models, and names of families, of a command line."""
    names: list[str] = []
    for parameter in MODELS:
        value = ctx.params.get(parameter)
        if isinstance(value, tuple):
            names += map(str, value)
        elif value is not None:
            names.append(str(value))
    # Where an option at the end has no value yet, click leaves arguments unparsed.
    return names or ctx.args[:1]


FAMILY = NamesType(families)
HEAD = NamesType(heads)
OBJECTIVE = NamesType(objectives)
PRESET = NamesType(presets)
RECIPE = NamesType(recipes, files=True)
ADAPTER = NamesType(adapters)
COLUMN = NamesType(columns)
SUITE = NamesType(suites)
MODEL_TYPE = NamesType(model_types)
# Placeholder of a task's option -> its type.
PLACEHOLDER_TYPES = {"COL": COLUMN, "PROMPT": NamesType(prompts), "SPLIT": NamesType(splits)}
# Setting whose values are names -> the names.
NAMED_VALUES: dict[str, Names] = {
    "family": families,
    "size": sizes,
    "objective": objectives,
    "seq_len_warmup.objective": objectives,
    "optimizer.name": optimizers,
    "report_to": loggers,
    "task": tasks,
    "preset": presets,
    "distillation.recipe": recipes,
}
# shared option -> its type
SHARED_TYPES = {
    "task": NamesType(tasks),
    "size": NamesType(sizes),
    "assignments": AssignmentType(settings),
    "dtype": NamesType(dtypes),
    "device": NamesType(devices),
    "report_to": NamesType(loggers),
    **dict.fromkeys(("text", "pair", "label"), COLUMN),
}
