"""The command ``zoo completion``, and the completions that its scripts ask for."""

import contextlib
import io
import os
from collections.abc import Sequence
from typing import Any

import click
from click.shell_completion import (
    BashComplete,
    CompletionItem,
    FishComplete,
    ShellComplete,
    ZshComplete,
)

from zoo.cli.options import verbosity_options
from zoo.overrides import override

VARIABLE = "_ZOO_COMPLETE"  # in which a script passes its instruction, such as bash_complete


class Bash(BashComplete):
    """Completion in bash, which takes ``KEY=VALUE`` for three words."""

    # No blank follows a completion such as ``optimizer.name=``, whose value is typed next.
    source_template = BashComplete.source_template.replace(
        "COMPREPLY+=($value)",
        "COMPREPLY+=($value)\n            [[ $value == *= ]] && compopt -o nospace",
    )

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._joined = ""  # What bash has of the last word already: ``KEY=``.

    @override
    def get_completion_args(self) -> tuple[list[str], str]:
        words, incomplete = super().get_completion_args()
        if incomplete == "=":
            words.append(incomplete)
            incomplete = ""
        if _ends_in_assignment(words):
            self._joined = f"{words[-2]}="
            incomplete = f"{self._joined}{incomplete}"
            words = words[:-2]
        return _join_assignments(words), incomplete

    @override
    def format_completion(self, item: "CompletionItem[Any]") -> str:
        item.value = item.value.removeprefix(self._joined)
        return super().format_completion(item)


class Zsh(ZshComplete):
    """Completion in zsh, with no blank after ``KEY=``."""

    # Fish adds no blank after ``=`` by itself.
    source_template = ZshComplete.source_template.replace(
        "compadd -U -V unsorted -a completions",
        """local -a assignments
        assignments=(${(M)completions:#*=})
        completions=(${completions:#*=})
        compadd -U -V unsorted -S '' -a assignments
        compadd -U -V unsorted -a completions""",
    )


SHELLS: dict[str, type[ShellComplete]] = {"bash": Bash, "zsh": Zsh, "fish": FishComplete}


def _ends_in_assignment(words: Sequence[str]) -> bool:
    """Return whether the last words are a key and ``=``, and not an option and ``=``."""
    return len(words) > 1 and words[-1] == "=" and not words[-2].startswith("-")


def _join_assignments(words: Sequence[str]) -> list[str]:
    """Return words in which a key, ``=`` and a value are one, and an option and a value two."""
    joined: list[str] = []
    follows_separator = False
    for word in words:
        if follows_separator:
            joined[-1] += word
            follows_separator = False
        elif _ends_in_assignment([*joined, word]):
            joined[-1] += word
            follows_separator = True
        elif word == "=":  # Between an option and its value.
            continue
        else:
            joined.append(word)
    return joined


@click.command(
    epilog="""\b
Examples:
  eval "$(zoo completion bash)"  in ~/.bashrc
  eval "$(zoo completion zsh)"   in ~/.zshrc
  zoo completion fish > ~/.config/fish/completions/zoo.fish"""
)
@click.argument("shell", type=click.Choice(list(SHELLS)))
@verbosity_options
def command(shell: str) -> None:
    """Print the shell completion script. In zsh, it comes after `compinit`."""
    from zoo.cli import cli

    click.echo(SHELLS[shell](cli, {}, "zoo", VARIABLE).source())


def complete(program: click.Command, instruction: str) -> int:
    """Print the completions that a script asks for, and return the exit code."""
    # A shell calls this while the user types: nothing else is printed, and an error completes
    # nothing, unless ``ZOO_DEBUG=1`` is set.
    shell, _, action = instruction.partition("_")
    completion_class = SHELLS.get(shell)
    if completion_class is None or action not in ("source", "complete"):
        return 1
    completer = completion_class(program, {}, "zoo", VARIABLE)
    try:
        with contextlib.redirect_stderr(io.StringIO()):
            text = completer.source() if action == "source" else completer.complete()
    except (Exception, SystemExit):  # plugins may raise any
        if os.environ.get("ZOO_DEBUG") == "1":
            raise
        return 1
    click.echo(text)
    return 0
