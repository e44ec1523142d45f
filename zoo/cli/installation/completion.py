"""The command ``zoo completion``."""

import click

from zoo.cli.options import verbosity_options


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
    from click.shell_completion import get_completion_class

    from zoo.cli import cli

    kind = get_completion_class(shell)
    assert kind is not None, "click knows the three shells"
    click.echo(kind(cli, {}, "zoo", "_ZOO_COMPLETE").source())
