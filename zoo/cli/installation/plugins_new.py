"""The command ``zoo plugins new``."""

from pathlib import Path

import click

from zoo.cli.options import common_options, output_option
from zoo.cli.output import result

KINDS = ("encoder", "decoder", "encoder-decoder", "recurrent")


@click.command(
    epilog="""\b
Examples:
  zoo plugins new mine
  zoo plugins new mine --like decoder -o ./zoo-mine"""
)
@click.argument("name")
@click.option(
    "--like",
    type=click.Choice(KINDS),
    default="encoder",
    show_default=True,
    help="Kind of model to begin with.",
)
@output_option
@common_options
def command(name: str, like: str, output: Path | None, as_json: bool) -> None:
    """Write a project with a new family NAME, in the directory zoo-NAME by default.

    The project can be installed, passes its conformance tests, and every command works with it:
    configuration, model, weight rules, recipe, registry, tests and a workflow that runs them.
    """
    from zoo.plugins.scaffold import PluginNames, write_project

    directory = output or Path(PluginNames(name).distribution)
    files = write_project(name, like, directory)
    lines = [*(str(directory / file) for file in files), f"next: zoo plugins install {directory}"]
    result({"path": str(directory), "files": files}, lines, as_json=as_json)
