"""Options and texts of commands that derive from declarations of tasks."""

import textwrap
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import click

from zoo.cli.completion import COLUMN
from zoo.cli.options import FiniteRange, IntegerRange, PathOrText, PathText
from zoo.families.tasks import Part, TaskOption, TaskSpec
from zoo.plugins.tasks import find_tasks, public_tasks

METAVARS: dict[type, str] = {int: "N", float: "X"}


def task_option(option: TaskOption) -> click.Option:
    """Return the option of a command for a declared one."""
    kind: Any = option.type
    bounds = {"min_open": option.exclusive, "max_open": option.exclusive}
    if option.choices:
        kind = click.Choice(option.choices)
    elif option.type is int:
        kind = IntegerRange(option.minimum, option.maximum)
    elif option.type is float:
        kind = FiniteRange(option.minimum, option.maximum, **bounds)
    elif option.type is Path:
        kind = _path_type(option.metavar or "")
    elif option.metavar == "COL":
        kind = COLUMN
    metavar = option.metavar or (None if option.choices else METAVARS.get(option.type))
    flag: dict[str, Any] = {"type": kind, "metavar": metavar}
    if option.type is bool:
        flag = {} if "/" in option.flags else {"is_flag": True}
    return click.Option(
        [option.name, *option.flags.split(" ")],
        default=option.default,
        show_default=option.default is not None,
        multiple=option.multiple,
        help=option.help,
        **flag,
    )


def _path_type(metavar: str) -> PathOrText:
    """Return the type of an option whose metavar says what the path names."""
    if "TEXT" in metavar:
        return PathOrText()
    return PathText("output" if metavar == "DIR" else "file")


def table_of_tasks(part: Part) -> str:
    """Return the tasks with their summaries, for the help of a command at 80 columns."""
    return "\n".join(
        textwrap.fill(f"  {spec.name:21}{spec.summary}", 78, subsequent_indent=" " * 23)
        for spec in public_tasks(part)
    )


def declared_options(part: Part, specs: Iterable[TaskSpec] | None = None) -> list[TaskOption]:
    """Return the options of ``zoo finetune`` or ``zoo eval``, each name once."""
    options: dict[str, TaskOption] = {}
    for spec in public_tasks(part) if specs is None else specs:
        for option in spec.train_options if part == "train" else spec.eval_options:
            options.setdefault(option.name, option)
    return list(options.values())


def task_options(part: Part) -> Callable[[Any], Any]:
    """Return a decorator that adds the options that built-in tasks declare."""

    def decorate(function: Any) -> Any:
        return add_options(function, declared_options(part))

    return decorate


def add_options(function: Any, options: Sequence[TaskOption]) -> Any:
    """Add declared options to a function that becomes a command."""
    for option in reversed(options):
        params = function.__dict__.setdefault("__click_params__", [])
        params.append(task_option(option))
    return function


def task_settings(task: str | None) -> dict[str, str]:
    """Return option -> setting of what built-in tasks declare for fine-tuning, and a plugin's."""
    options = [*declared_options("train"), *declared_options("train", _tasks_of(task, "train"))]
    return {option.name: option.setting for option in options}


def _tasks_of(task: str | None, part: Part) -> list[TaskSpec]:
    """Return the tasks of a name; none if it is unknown, which the settings report."""
    from zoo.errors import UsageError

    try:
        return [] if task is None else find_tasks(task, part)
    except UsageError:
        return []


class TaskCommand(click.Command):
    """Command with ``--task``; a plugin's task adds its own options."""

    def __init__(self, *args: Any, part: Part, **options: Any) -> None:
        super().__init__(*args, **options)
        self.part: Part = part

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse arguments, after adding the options of a plugin's task."""
        known = {parameter.name for parameter in self.params}
        specs = _tasks_of(value_of(args, "--task"), self.part)
        options = declared_options(self.part, specs)
        self.params += [task_option(option) for option in options if option.name not in known]
        return super().parse_args(ctx, args)


def value_of(args: Sequence[str], flag: str) -> str | None:
    """Return the value of an option in arguments, or ``None``."""
    for k, argument in enumerate(args):
        if argument == flag:
            return args[k + 1] if k + 1 < len(args) else None
        if argument.startswith(f"{flag}="):
            return argument.partition("=")[2]
    return None
