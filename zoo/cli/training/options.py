"""Options shared by the training commands, and their conversion to settings."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import click

from zoo.cli.options import (
    REFERENCE,
    IntegerRange,
    KeptFile,
    count_option,
    seed_option,
    shared_option,
)

Function = TypeVar("Function", bound=Callable[..., Any])

# option of ``run_options`` -> path of the setting
SETTINGS = {
    "size": "size",
    "objective": "objective",
    "init_from": "init_from.model",
    "train": "data.paths",
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

max_steps_option = shared_option("max_steps", type=IntegerRange(1))
report_option = shared_option("report_to", multiple=True)
set_option = shared_option("assignments", multiple=True)
text_option = shared_option("text", "Column of the text.  [default: text]")
pair_option = shared_option("pair", "Column of the second text.")
label_option = shared_option("label", "Column of the label.  [default: label]")
skip_invalid_option = shared_option("skip_invalid", is_flag=True, default=None)


def data_option(
    name: str, description: str, *, metavar: str = "PATH", former: tuple[str, ...] = ()
) -> Callable[[Function], Function]:
    """Return ``--train`` or ``--eval``, which may be repeated."""
    return shared_option(
        name, description, multiple=True, type=KeptFile(), metavar=metavar, former=former
    )


def run_options(function: Function) -> Function:
    """Add the options of a run's configuration; ``overrides_from_options`` reads them."""
    for option in reversed(
        (
            shared_option("size", "Model size, one of the family's."),
            click.option("--objective", metavar="O", help="Pretraining objective."),
            click.option(
                "--init-from",
                type=REFERENCE,
                metavar="REF",
                help="Checkpoint to initialise the weights from.",
            ),
            data_option("train", "Training text, or a built corpus.", former=("--data",)),
            data_option("eval_data", "Held-out text for evaluation.", former=("--eval-data",)),
            shared_option(
                "tokenizer",
                "Model whose tokenizer is used, or train.",
                type=REFERENCE,
                metavar="REF|train",
            ),
            max_steps_option,
            count_option("--global-batch-tokens", "Number of tokens per optimizer step."),
            report_option,
            set_option,
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
    """Return the settings of the options that were given."""
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
