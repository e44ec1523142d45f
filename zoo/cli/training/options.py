"""Options shared by the training commands, and their conversion to settings."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from zoo.cli.options import seed_option

Function = TypeVar("Function", bound=Callable[..., Any])

config_argument = click.argument("family_or_file", metavar="FAMILY|CONFIG.yaml", required=False)


def run_options(function: Function) -> Function:
    """Add the options of a run's configuration; ``overrides_from_options`` reads them."""
    for option in reversed(
        (
            click.option("--size", metavar="S", help="Model size, one of the family's."),
            click.option("--objective", metavar="O", help="Pretraining objective."),
            click.option(
                "--init-from", metavar="REF", help="Checkpoint to initialise the weights from."
            ),
            click.option(
                "--data", multiple=True, metavar="PATH", help="Training text, or a built corpus."
            ),
            click.option(
                "--eval-data", multiple=True, metavar="PATH", help="Held-out text for evaluation."
            ),
            click.option(
                "--tokenizer",
                metavar="REF|train",
                help="Checkpoint whose tokenizer is used, or train.",
            ),
            click.option("--max-steps", type=click.IntRange(1), help="Number of optimizer steps."),
            click.option(
                "--global-batch-tokens",
                type=click.IntRange(1),
                help="Number of tokens per optimizer step.",
            ),
            click.option(
                "--report-to",
                multiple=True,
                metavar="LOGGER",
                help="tensorboard (default), wandb, mlflow, or a plugin's logger.",
            ),
            click.option(
                "--set",
                "assignments",
                multiple=True,
                metavar="KEY=VALUE",
                help="Override any setting.",
            ),
            seed_option,
        )
    ):
        function = option(function)
    return function


def config_values(family_or_file: str | None) -> dict[str, Any]:
    """Return the settings of a configuration file, or of a family's name."""
    from zoo.training.config.overrides import read_config_file

    if family_or_file is None:
        return {}
    file = config_file(family_or_file)
    return {"family": family_or_file} if file is None else read_config_file(file)


def config_file(family_or_file: str | None) -> Path | None:
    """Return the configuration file that the argument names, or ``None`` if it names a family."""
    if family_or_file is None or Path(family_or_file).suffix not in (".yaml", ".yml"):
        return None
    return Path(family_or_file)


def overrides_from_options(ctx: click.Context, options: dict[str, Any]) -> dict[str, Any]:
    """Return the settings of the options that were given."""
    from zoo.training.config.overrides import deep_merge, parse_override

    if ctx.get_parameter_source("seed") is click.core.ParameterSource.DEFAULT:
        options = {**options, "seed": None}
    nested = {"paths": "data", "eval_paths": "eval_data", "tokenizer": "tokenizer"}
    read = {name: options[option] for name, option in nested.items() if options[option]}
    options = {**options, "report_to": options["report_to"] or None}
    rest = options.keys() - {*nested.values(), "assignments", "init_from"}
    direct = {name: options[name] for name in rest if options[name] is not None}
    if options["init_from"] is not None:
        direct["init_from"] = {"model": options["init_from"]}
    assignments = map(parse_override, options["assignments"])
    return deep_merge(direct, {"data": read} if read else {}, *assignments)
