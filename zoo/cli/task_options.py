"""Options and texts of commands that derive from declarations of tasks."""

import textwrap
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import click

from zoo.cli.completion import PLACEHOLDER_TYPES
from zoo.cli.parameter_types import FiniteRange, IntegerRange, PathOrText, PathText
from zoo.families.tasks import Part, TaskOption, TaskSpec
from zoo.overrides import override
from zoo.plugins.suites import BUILT_IN as BUILT_IN_SUITES
from zoo.plugins.tasks import find_tasks, public_tasks, task_losses

METAVARS: dict[type, str] = {int: "N", float: "X"}
TASKS_OF_HELP = "zoo.tasks_of_help"  # In click's ``meta``: the tasks that ``--task`` names.


def task_option(option: TaskOption) -> click.Option:
    """Return the option of a command for a declared one."""
    attributes: dict[str, Any] = {}
    if option.type is not bool:
        attributes["type"] = _value_type(option)
        attributes["metavar"] = option.metavar
        if not option.metavar and not option.choices:
            attributes["metavar"] = METAVARS.get(option.type)
    elif "/" not in option.flags:
        attributes["is_flag"] = True
    return click.Option(
        [option.name, *option.flags.split(" ")],
        default=option.default,
        show_default=option.default is not None,
        multiple=option.multiple,
        help=option.help,
        **attributes,
    )


def _value_type(option: TaskOption) -> Any:
    """Return the type of click that checks the value of an option."""
    if option.choices:
        return click.Choice(option.choices)
    if option.type is int:
        return IntegerRange(option.minimum, option.maximum)
    if option.type is float:
        return FiniteRange(
            option.minimum,
            option.maximum,
            min_open=option.exclusive,
            max_open=option.exclusive,
        )
    if option.type is Path:
        return _path_type(option.metavar or "")
    return PLACEHOLDER_TYPES.get(option.metavar or "", option.type)


def _path_type(metavar: str) -> PathOrText:
    """Return the type of an option whose metavar says what the path names."""
    if "TEXT" in metavar:
        return PathOrText()
    return PathText("output" if metavar == "DIR" else "file")


def table_of_tasks(part: Part) -> str:
    """Return the tasks with their summaries, for the help of a command at 80 columns."""
    lines = []
    for spec in public_tasks(part):
        text = f"  {spec.name:21}{spec.summary}"
        lines.append(textwrap.fill(text, 78, subsequent_indent=" " * 23))
    return "\n".join(lines)


def table_of_suites(*, finetuned: bool = False) -> str:
    """Return the suites with their summaries, for the help of a command at 80 columns.

    With ``finetuned``, only those that a model is trained for.
    """
    lines = []
    for name, suite in BUILT_IN_SUITES.items():
        if suite.is_finetuned or not finetuned:
            lines.append(f"  {name:21}{suite.summary}")
    return "\n".join(lines)


tasks_option = click.option(
    "--tasks",
    multiple=True,
    metavar="NAME[,NAME]",
    help="Tasks of --suite.  [default: all]",
)


def declared_options(part: Part, specs: Iterable[TaskSpec] | None = None) -> list[TaskOption]:
    """Return the options of ``zoo finetune`` or ``zoo eval``, each name once."""
    options: dict[str, TaskOption] = {}
    if specs is None:
        specs = public_tasks(part)
    for spec in specs:
        part_options = spec.train_options if part == "train" else spec.eval_options
        for option in part_options:
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


def _tasks_of(task: str | None, part: Part) -> list[TaskSpec]:
    """Return the tasks of a name; none if it is unknown, which the settings report."""
    from zoo.errors import UsageError

    try:
        return [] if task is None else find_tasks(task, part)
    except UsageError:
        return []


class TaskCommand(click.Command):
    """Command with ``--task``; a plugin's task adds its own options.

    Help has the options that most tasks have. With ``--task`` it begins with the task's own.
    """

    def __init__(self, *args: Any, part: Part, **options: Any) -> None:
        super().__init__(*args, **options)
        self.part: Part = part

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse arguments, after adding the options of a plugin's task."""
        parameter_names = {parameter.name for parameter in self.params}
        specs = _tasks_of(value_of(args, "--task"), self.part)
        for option in declared_options(self.part, specs):
            if option.name not in parameter_names:
                self.params.append(task_option(option))
        ctx.meta[TASKS_OF_HELP] = specs
        return super().parse_args(ctx, args)

    @override
    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options of the task that the command line names, and the common ones."""
        specs: list[TaskSpec] = ctx.meta.get(TASKS_OF_HELP, [])
        own_options = {option.name for option in declared_options(self.part, specs)}
        task_options_of_all = {option.name for option in declared_options(self.part)}
        hidden_options = task_options_of_all - _common_options(self.part)
        own_rows = []
        common_rows = []
        for parameter in self.get_params(ctx):
            row = parameter.get_help_record(ctx)
            if row is None or not isinstance(parameter, click.Option):
                continue
            if specs and parameter.name in own_options:
                own_rows.append(row)
            elif parameter.name not in hidden_options:
                common_rows.append(row)
        if own_rows:
            with formatter.section(f"Options of {specs[0].name}"):
                formatter.write_dl(own_rows)
        for spec in specs:
            if self.part == "train" and spec.losses:
                with formatter.section("Losses, as --set task_args.loss=NAME"):
                    formatter.write_dl([(loss.name, loss.summary) for loss in task_losses(spec)])
        with formatter.section("Options"):
            formatter.write_dl(common_rows)


def _common_options(part: Part) -> set[str]:
    """Return the names of the options that most tasks declare."""
    specs = public_tasks(part)
    counts = Counter(option.name for spec in specs for option in declared_options(part, [spec]))
    return {name for name, count in counts.items() if 2 * count > len(specs)}


def value_of(args: Sequence[str], flag: str) -> str | None:
    """Return the value of an option in arguments, or ``None``."""
    for index, argument in enumerate(args):
        if argument == flag:
            return args[index + 1] if index + 1 < len(args) else None
        if argument.startswith(f"{flag}="):
            return argument.partition("=")[2]
    return None
