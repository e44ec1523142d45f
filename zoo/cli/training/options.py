"""Options shared by the training commands, and their conversion to settings."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import click

from zoo.cli.options import PATH, REFERENCE, count_option, seed_option

Function = TypeVar("Function", bound=Callable[..., Any])

# option of ``run_options`` -> path of the setting
SETTINGS = {
    "size": "size",
    "objective": "objective",
    "init_from": "init_from.model",
    "data": "data.paths",
    "eval_data": "data.eval_paths",
    "tokenizer": "data.tokenizer",
    "max_steps": "max_steps",
    "global_batch_tokens": "global_batch_tokens",
    "report_to": "report_to",
    "fsdp": "fsdp",
    "keep_optimizer": "keep_optimizer",
    "seed": "seed",
}
config_argument = click.argument(
    "family_or_file", metavar="FAMILY|CONFIG.yaml", type=REFERENCE, required=False
)


def run_options(function: Function) -> Function:
    """Add the options of a run's configuration; ``overrides_from_options`` reads them."""
    for option in reversed(
        (
            click.option("--size", metavar="S", help="Model size, one of the family's."),
            click.option("--objective", metavar="O", help="Pretraining objective."),
            click.option(
                "--init-from",
                type=REFERENCE,
                metavar="REF",
                help="Checkpoint to initialise the weights from.",
            ),
            click.option(
                "--data",
                multiple=True,
                type=PATH,
                metavar="PATH",
                help="Training text, or a built corpus.",
            ),
            click.option(
                "--eval-data",
                multiple=True,
                type=PATH,
                metavar="PATH",
                help="Held-out text for evaluation.",
            ),
            click.option(
                "--tokenizer",
                type=REFERENCE,
                metavar="REF|train",
                help="Checkpoint whose tokenizer is used, or train.",
            ),
            count_option("--max-steps", "Number of optimizer steps."),
            count_option("--global-batch-tokens", "Number of tokens per optimizer step."),
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


def overrides_from_options(
    ctx: click.Context, settings: Mapping[str, str], options: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the settings of the options that were given.

    Args:
        ctx: context of the command.
        settings: option -> path of the setting. Other options have none.
        options: values of the options, with ``assignments``, those of ``--set``.
    """
    from zoo.errors import UsageError
    from zoo.training.config.overrides import deep_merge, parse_override

    keys = [assignment.partition("=")[0].strip() for assignment in options["assignments"]]
    if twice := [key for key in dict.fromkeys(keys) if keys.count(key) > 1]:
        raise UsageError(f"--set {twice[0]} is given twice", "give it once")
    trees = []
    for name in settings.keys() & options.keys():
        source = ctx.get_parameter_source(name)
        if source is click.core.ParameterSource.DEFAULT or options[name] in (None, ()):
            continue
        tree: Any = options[name]
        for key in reversed(settings[name].split(".")):
            tree = {key: tree}
        trees.append(tree)
    return deep_merge(*trees, *map(parse_override, options["assignments"]))
