"""Options shared by the training commands, and their conversion to settings."""

import math
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import click

from zoo.cli.completion import ADAPTER, OBJECTIVE
from zoo.cli.options import count_option, seed_option, shared_option
from zoo.cli.parameter_types import REFERENCE, FiniteRange, IntegerRange, KeptFile
from zoo.overrides import override

Function = TypeVar("Function", bound=Callable[..., Any])
UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}  # of a time, in seconds
# options that exclude each other
EXCLUSIVE = (("epochs", "max_steps"), ("batch_size", "global_batch_tokens"))

# option of all training commands -> path of the setting
SHARED_SETTINGS = {
    "learning_rate": "optimizer.learning_rate",
    "epochs": "num_train_epochs",
    "max_steps": "max_steps",
    "batch_size": "batch_size",
    "max_seq_len": "max_seq_len",
    "report_to": "report_to",
    "fsdp": "fsdp",
    "keep_optimizer": "keep_optimizer",
    "seed": "seed",
}
# option of ``run_options`` -> path of the setting
SETTINGS = SHARED_SETTINGS | {
    "size": "size",
    "objective": "objective",
    "adapter": "adapter.method",
    "init_from": "init_from.model",
    "train": "data.paths",
    "eval_data": "data.eval_paths",
    "text": "data.reader.text_field",
    "tokenizer": "data.tokenizer",
    "global_batch_tokens": "global_batch_tokens",
}
config_argument = click.argument(
    "family_or_file", metavar="FAMILY|CONFIG.yaml", type=REFERENCE, required=False
)

text_option = shared_option("text", "Column of the text.  [default: text]")
text_of_table_option = shared_option(
    "text", "Column of the text in a table, or its key in JSON lines.  [default: text]"
)
pair_option = shared_option("pair", "Column of the second text.")
label_option = shared_option("label", "Column of the label.  [default: label]")
skip_invalid_option = shared_option("skip_invalid", is_flag=True, default=None)


def data_option(
    name: str, description: str, *, metavar: str = "PATH"
) -> Callable[[Function], Function]:
    """Return ``--train`` or ``--eval``, which may be repeated."""
    return shared_option(name, description, multiple=True, type=KeptFile(), metavar=metavar)


adapter_option = shared_option(
    "adapter",
    "Train an adapter and keep the model as it is: lora, dora, ia3, ...",
    type=ADAPTER,
    metavar="METHOD",
)


def training_options(function: Function) -> Function:
    """Add the options of the settings that everyone looks for."""
    for option in reversed(
        (
            shared_option("learning_rate", type=FiniteRange(0, min_open=True)),
            shared_option("max_steps", type=IntegerRange(1)),
            shared_option("batch_size", "Number of rows per optimizer step.", type=IntegerRange(1)),
            shared_option(
                "max_seq_len", "Largest number of tokens of a row.", type=IntegerRange(1)
            ),
            shared_option("report_to", multiple=True),
            shared_option("assignments", multiple=True),
            seed_option,
        )
    ):
        function = option(function)
    return function


class DurationType(click.ParamType[float]):
    """Time in seconds, minutes, hours or days: ``90s``, ``3m``, ``1h30m``."""

    name = "time"

    @override
    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        if not isinstance(value, str):
            return float(value)
        parts = re.findall(r"([0-9]+(?:\.[0-9]+)?)([smhd])", value)
        seconds = sum(float(number) * UNITS[unit] for number, unit in parts)
        if "".join(map("".join, parts)) != value or not 0 < seconds < math.inf:
            self.fail(f"{value!r} is not a time, such as 90s, 3m or 1h30m", param, ctx)
        return seconds


def run_options(function: Function) -> Function:
    """Add the options of a run's configuration; ``overrides_from_options`` reads them."""
    for option in reversed(
        (
            shared_option("size", "Model size, one of the family's."),
            click.option("--objective", type=OBJECTIVE, metavar="O", help="Pretraining objective."),
            click.option(
                "--init-from",
                type=REFERENCE,
                metavar="REF",
                help="Checkpoint to initialise the weights from.",
            ),
            adapter_option,
            data_option("train", "Training text, or a built corpus."),
            data_option("eval_data", "Held-out text for evaluation."),
            text_of_table_option,
            shared_option(
                "tokenizer",
                "Model whose tokenizer is used, or train.",
                type=REFERENCE,
                metavar="REF|train",
            ),
            count_option("--global-batch-tokens", "Number of tokens per optimizer step."),
            training_options,
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
    given = {
        name
        for name in settings.keys() & options.keys()
        if options[name] not in (None, ())
        and ctx.get_parameter_source(name) is not click.core.ParameterSource.DEFAULT
    }
    for pair in EXCLUSIVE:
        if given.issuperset(pair):
            names = (f"--{name.replace('_', '-')}" for name in pair)
            raise click.UsageError(f"{' and '.join(names)} exclude each other; give one", ctx)
    trees = []
    for name in given:
        tree: Any = options[name]
        for key in reversed(settings[name].split(".")):
            tree = {key: tree}
        trees.append(tree)
    return deep_merge(*trees, *map(parse_override, options["assignments"]))
