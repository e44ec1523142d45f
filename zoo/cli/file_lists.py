"""Several files after one option: ``--train a.txt b.txt``, and patterns that the shell expands."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from zoo.cli.parameter_types import PathText

CONFIG_SUFFIXES = (".yaml", ".yml")  # A file of settings may take the place of a model.


class DependentArgument(click.Argument):
    """Positional argument that a command only takes with one of its options.

    Args:
        flag: the option, such as ``--suite``.
        *arguments: see ``click.Argument``.
        **attributes: see ``click.Argument``.
    """

    def __init__(self, *arguments: Any, flag: str, **attributes: Any) -> None:
        super().__init__(*arguments, **attributes)
        self.flag = flag


def repeat_file_options(command: click.Command, arguments: Sequence[str]) -> list[str]:
    """Return arguments in which an option stands before each of several files.

    ``--train a.txt b.txt`` becomes ``--train a.txt --train b.txt`` where the command can have no
    further positional argument, so that the second file cannot be one.

    Args:
        command: the command that gets the arguments.
        arguments: its words.

    Raises:
        click.UsageError: there are too many positional arguments, and one follows such an option;
            or the only one is another file of data.
    """
    options = {flag: option for option in command.params for flag in option.opts}
    max_positional = _max_positional(command, arguments)
    repeated: list[str] = []
    positional_count = 0
    after_file = ""  # The option and its file, if a positional argument follows them.
    is_data_file = False  # Whether this argument names a file, which no model is.
    file_option = ""  # The option whose files may go on.
    words = list(arguments)
    while words:
        word = words.pop(0)
        if word == "--":
            return [*repeated, word, *words]
        if not word.startswith("-") or word == "-":
            if file_option and positional_count >= max_positional:
                repeated += [file_option, word]
                continue
            if file_option and not after_file:
                after_file = f"{repeated[-2]} {repeated[-1]} {file_option} {word}"
                is_data_file = Path(word).is_file() and Path(word).suffix not in CONFIG_SUFFIXES
            file_option = ""
            repeated.append(word)
            positional_count += 1
            continue
        flag, equals, _ = word.partition("=")
        option = options.get(flag)
        repeated.append(word)
        file_option = ""
        if equals or not isinstance(option, click.Option) or option.is_flag or option.count:
            continue
        values = words[: option.nargs]
        words = words[option.nargs :]
        repeated += values
        if values and option.multiple and isinstance(option.type, PathText):
            file_option = flag
    if after_file and positional_count > max_positional:
        raise click.UsageError(f"there are too many arguments; write {after_file}")
    if is_data_file and max_positional < float("inf"):
        flag = after_file.partition(" ")[0]
        raise click.UsageError(
            f"{flag} takes one file where a model may follow; write {after_file}"
        )
    return repeated


def _max_positional(command: click.Command, arguments: Sequence[str]) -> float:
    """Return the largest number of positional arguments of a command."""
    flags = {word.partition("=")[0] for word in arguments}
    count = 0.0
    for parameter in command.params:
        if isinstance(parameter, DependentArgument) and parameter.flag not in flags:
            continue
        if isinstance(parameter, click.Argument):
            count += float("inf") if parameter.nargs < 0 else parameter.nargs
    return count
