"""What the commands that train have in common: the options that say what a run is."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from zoo.cli.options import seed_option

Function = TypeVar("Function", bound=Callable[..., Any])

what_argument = click.argument("what", metavar="FAMILY|CONFIG.yaml", required=False)


def run_options(function: Function) -> Function:
    """Add the options that say what a run is; ``chosen`` reads them."""
    for option in reversed(
        (
            click.option("--size", metavar="S", help="One of the family's sizes."),
            click.option("--objective", metavar="O", help="What is learnt."),
            click.option("--start", metavar="REF", help="A model to begin with."),
            click.option(
                "--data", multiple=True, metavar="PATH", help="Text, or a corpus that was built."
            ),
            click.option(
                "--validation-data", multiple=True, metavar="PATH", help="Text to hold out."
            ),
            click.option("--tokenizer", metavar="REF|train", help="Whose tokenizer, or a new one."),
            click.option("--steps", type=click.IntRange(1), help="Updates of the weights."),
            click.option("--batch-tokens", type=click.IntRange(1), help="Tokens in a step."),
            click.option(
                "--set", "assignments", multiple=True, metavar="KEY=VALUE", help="Any setting."
            ),
            seed_option,
        )
    ):
        function = option(function)
    return function


def tree(what: str | None) -> dict[str, Any]:
    """Return the settings that a family's name, or a file of settings, stands for."""
    from zoo.training.trees import read_file

    if what is None:
        return {}
    file = settings_file(what)
    return {"family": what} if file is None else read_file(file)


def settings_file(what: str | None) -> Path | None:
    """Return the file that the argument names, or ``None`` where it names a family."""
    return Path(what) if what is not None and Path(what).suffix in (".yaml", ".yml") else None


def chosen(ctx: click.Context, options: dict[str, Any]) -> dict[str, Any]:
    """Return the settings that options stand for, those alone that were given."""
    from zoo.training.trees import assignment, merged

    if ctx.get_parameter_source("seed") is click.core.ParameterSource.DEFAULT:
        options = {**options, "seed": None}
    nested = {"paths": "data", "validation": "validation_data", "tokenizer": "tokenizer"}
    read = {name: options[option] for name, option in nested.items() if options[option]}
    rest = options.keys() - {*nested.values(), "assignments", "start"}
    direct = {name: options[name] for name in rest if options[name] is not None}
    if options["start"] is not None:
        direct["start"] = {"model": options["start"]}
    assignments = map(assignment, options["assignments"])
    return merged(direct, {"data": read} if read else {}, *assignments)
