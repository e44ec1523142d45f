"""Options of ``zoo export`` that export targets declare."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from msgspec import inspect

from zoo.cli.parameter_types import FiniteRange, IntegerRange, LocalPath
from zoo.cli.task_options import value_of
from zoo.errors import PluginError, UsageError
from zoo.exporting.targets import BUILT_IN, target_class, target_names
from zoo.io.lazy_import import lazy_import
from zoo.overrides import override
from zoo.plugins.entry_point_objects import broken_object, find_object

if TYPE_CHECKING:
    from zoo.exporting.targets.base import ExportTarget


# Options that the command has for every target; a target may give ``int8`` values of its own.
COMMON = ("int8", "int4")
ARGUMENTS = "zoo.export.arguments"  # key of a context
PLUGIN_OPTIONS = "zoo.export.plugin_options"  # key of a context


class TargetOption(click.Option):
    """An option that a target declares."""


def add_target_options(function: Any) -> Any:
    """Add the options of all built-in targets to a function that becomes a command."""
    declared: dict[str, TargetOption] = {}
    for name in BUILT_IN:
        target = lazy_import(BUILT_IN, name, "export target")  # looks at no plugin
        for option in target_options(target):
            assert option.name is not None, "a field has a name"
            shared = declared.setdefault(option.name, option)
            if shared is not option:
                help_text = str(option.help)
                help_text = help_text[0].lower() + help_text[1:]
                shared.help = f"{shared.help} With --to {name}: {help_text}"
    for option in reversed(declared.values()):
        function.__dict__.setdefault("__click_params__", []).append(option)
    return function


def target_options(target: "type[ExportTarget]") -> list[TargetOption]:
    """Return the options that a target declares, without those that every target has."""
    info = inspect.type_info(target.options_type)
    assert isinstance(info, inspect.StructType), "it is a struct"
    return [_option(field) for field in info.fields if field.name not in COMMON]


def _option(field: inspect.Field) -> TargetOption:
    """Return the option for a field; its value is ``None`` where it is not given."""
    value_type, help_text, metavar = _unwrap(field.type)
    flag = _flag(field.name)
    attributes: dict[str, Any] = {}
    if isinstance(value_type, inspect.BoolType):
        if field.default is False:
            attributes["is_flag"] = True
        else:
            flag = f"{flag}/--no-{flag.removeprefix('--')}"
    elif isinstance(value_type, inspect.LiteralType):
        attributes["type"] = click.Choice(value_type.values)  # returns a number for a number
    elif isinstance(value_type, inspect.IntType):
        attributes["type"] = IntegerRange(value_type.ge, value_type.le)
        attributes["metavar"] = metavar or "N"
    elif isinstance(value_type, inspect.FloatType):
        attributes["type"] = FiniteRange(value_type.ge, value_type.le)
        attributes["metavar"] = metavar or "X"
    elif isinstance(value_type, inspect.CustomType) and value_type.cls is Path:
        attributes["type"] = LocalPath("file")
        attributes["metavar"] = metavar or "FILE"
    elif isinstance(value_type, inspect.StrType):
        attributes["metavar"] = metavar
    else:
        raise ValueError(f"the option {flag} is not a text, number, choice, file or flag")
    if field.default is not None and not isinstance(field.default, bool):
        help_text = f"{help_text}  [default: {_spelled(field.default)}]"
    return TargetOption([field.name, flag], default=None, help=help_text, **attributes)


def _unwrap(value_type: inspect.Type) -> tuple[inspect.Type, str, str | None]:
    """Return the type of a field's values other than ``None``, its help and its placeholder."""
    help_text = ""
    metavar = None
    while isinstance(value_type, inspect.Metadata | inspect.UnionType):
        if isinstance(value_type, inspect.Metadata):
            help_text = (value_type.extra_json_schema or {}).get("description", help_text)
            metavar = (value_type.extra or {}).get("metavar", metavar)
            value_type = value_type.type
        else:
            choices = [one for one in value_type.types if not isinstance(one, inspect.NoneType)]
            value_type = choices[0]
    return value_type, help_text, metavar


def _spelled(value: Any) -> str:
    """Return a default as it is typed, without an exponent."""
    return f"{value:f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _option_names(name: str | None) -> tuple[str, ...]:
    """Return the names of the options of a target; none if no target has the name."""
    if name is None:
        return ()
    try:
        return target_class(name).options_type.__struct_fields__
    except UsageError:  # ``--to`` reports it
        return ()


def _plugin_targets_with(flag: str) -> list[str]:
    """Return the plugins' targets that have an option; one that cannot be imported has none."""
    names = []
    for name in target_names():
        if name in BUILT_IN:
            continue
        try:
            options = target_options(target_class(name))
        except (PluginError, ValueError):  # It is reported where the target is used.
            continue
        if any(flag in [*option.opts, *option.secondary_opts] for option in options):
            names.append(name)
    return names


class ExportCommand(click.Command):
    """Command with ``--to``; a plugin's target adds its own options."""

    @override
    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.meta[ARGUMENTS] = list(args)
        name = value_of(args, "--to")
        if name is not None and name not in BUILT_IN:
            ctx.meta[PLUGIN_OPTIONS] = list(self._plugin_options(name))
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            names = _plugin_targets_with(error.option_name)
            if not names:
                raise
            raise UsageError(
                f"{error.option_name} is an option of --to {' and '.join(names)}", "add it"
            ) from error

    @override
    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options of the target that the command line names, and the common ones."""
        name = value_of(ctx.meta.get(ARGUMENTS, ()), "--to")
        own_names = _option_names(name)
        own_rows = []
        common_rows = []
        for param in self.get_params(ctx):
            row = param.get_help_record(ctx)
            if row is None or not isinstance(param, click.Option):
                continue
            if isinstance(param, TargetOption) and param.name in own_names:
                own_rows.append(row)
            else:
                common_rows.append(row)
        if own_rows:
            with formatter.section(f"Options of --to {name}"):
                formatter.write_dl(own_rows)
        with formatter.section("Options"):
            formatter.write_dl(common_rows)

    @override
    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        options: list[TargetOption] = ctx.meta.get(PLUGIN_OPTIONS, [])
        names = {option.name for option in options}
        params = super().get_params(ctx)
        # An option of a built-in target gives way to the one of that name of the plugin's target.
        for param in params:
            if isinstance(param, TargetOption) and param.name in names:
                params = [other for other in params if other is not param]
        return [*params, *options]

    def _plugin_options(self, name: str) -> Iterator[TargetOption]:
        """Yield the options of a plugin's target; none if no target has the name."""
        try:
            target = target_class(name)
        except UsageError:  # ``--to`` reports it
            return
        taken = {"--help"}
        for param in self.params:
            if not isinstance(param, TargetOption):
                taken.update(param.opts)
        try:
            for option in target_options(target):
                for flag in option.opts:
                    if flag in taken:
                        raise ValueError(f"{flag} is an option of all targets")
                yield option
        except ValueError as error:
            raise broken_object(find_object("targets", name, BUILT_IN), str(error)) from error
