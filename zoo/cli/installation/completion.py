"""The command ``zoo completion``, and the completions that its scripts ask for."""

import contextlib
import io
import os

import click
from click.shell_completion import get_completion_class

from zoo.cli.options import verbosity_options

VARIABLE = "_ZOO_COMPLETE"  # in which a script passes its instruction, such as bash_complete


@click.command(
    epilog="""\b
Examples:
  eval "$(zoo completion bash)"                            in ~/.bashrc
  zoo completion fish > ~/.config/fish/completions/zoo.fish"""
)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@verbosity_options
def command(shell: str) -> None:
    """Print the shell completion script."""
    from zoo.cli import cli

    completion_class = get_completion_class(shell)
    assert completion_class is not None, "click knows the three shells"
    click.echo(completion_class(cli, {}, "zoo", VARIABLE).source())


def complete(program: click.Command, instruction: str) -> int:
    """Print the completions that a script asks for, and return the exit code."""
    # A shell calls this while the user types: nothing else is printed, and an error completes
    # nothing, unless ``ZOO_DEBUG=1`` is set.
    shell, _, action = instruction.partition("_")
    completion_class = get_completion_class(shell)
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
