"""Options shared by the training commands, and their conversion to settings."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import click

from zoo.api.settings import collect_settings, parse_duration
from zoo.cli.completion import ADAPTER, OBJECTIVE
from zoo.cli.options import count_option, shared_option
from zoo.cli.parameter_types import REFERENCE, FiniteRange, IntegerRange, KeptFile
from zoo.overrides import override

Function = TypeVar("Function", bound=Callable[..., Any])

config_argument = click.argument(
    "family_or_file", metavar="FAMILY|CONFIG.yaml", type=REFERENCE, required=False
)

text_option = shared_option("text", "Column of the text.  [default: text]")
text_of_table_option = shared_option(
    "text", "Column of the text in a table, or its key in JSON lines.  [default: text]"
)
text_key_option = shared_option(
    "text",
    "Column of the text in a table, or its key in JSON lines.",
    default="text",
    show_default=True,
)
document_separator_option = click.option(
    "--document-separator",
    type=click.Choice(["file", "blank-line", "line"]),
    default="blank-line",
    show_default=True,
    help="Separator of documents in text files.",
)
pair_option = shared_option("pair", "Column of the second text.")
label_option = shared_option("label", "Column of the label.  [default: label]")
skip_invalid_option = shared_option("skip_invalid", is_flag=True, default=None)


# The seed of a file of settings, or of a run that is resumed, is the default.
seed_setting_option = shared_option("seed", "Random seed.  [default: 0]", type=IntegerRange())


def data_option(
    name: str, description: str, *, metavar: str = "PATH"
) -> Callable[[Function], Function]:
    """Return ``--train`` or ``--eval``, which may be repeated."""
    return shared_option(name, description, multiple=True, type=KeptFile(), metavar=metavar)


weight_option = shared_option("weight", multiple=True)
adapter_option = shared_option(
    "adapter",
    "Train an adapter and keep the model as it is: lora, dora, ia3, ...",
    type=ADAPTER,
    metavar="METHOD",
)


def normalization_options(function: Function) -> Function:
    """Add the options of what a trained tokenizer drops from texts."""
    lowercase = click.option(
        "--lowercase/--cased",
        default=None,
        help="Whether a trained tokenizer lower-cases texts.  [default: cased]",
    )
    strip_accents = click.option(
        "--strip-accents/--keep-accents",
        default=None,
        help="Whether it removes accents.  [default: with --lowercase]",
    )
    return lowercase(strip_accents(function))


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
            seed_setting_option,
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
        seconds = parse_duration(value)
        if seconds is None:
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
            data_option(
                "train",
                "Training text, or a built corpus; with a name, one of several sources.",
                metavar="[NAME=]PATH",
            ),
            data_option("eval_data", "Held-out text for evaluation.", metavar="[NAME=]PATH"),
            weight_option,
            text_of_table_option,
            click.option(
                "--streaming",
                is_flag=True,
                default=None,
                help="Tokenize the training text on the way, without a corpus.",
            ),
            shared_option(
                "tokenizer",
                "Model whose tokenizer is used, or train.",
                type=REFERENCE,
                metavar="REF|train",
            ),
            normalization_options,
            count_option("--global-batch-tokens", "Number of tokens per optimizer step."),
            training_options,
        )
    ):
        function = option(function)
    return function


def assigned_settings(assignments: Sequence[str]) -> dict[str, Any]:
    """Return the settings of ``--set``, nested; each may be given once."""
    from zoo.errors import UsageError
    from zoo.training.config.overrides import deep_merge, parse_override

    keys = [assignment.partition("=")[0].strip() for assignment in assignments]
    for key in dict.fromkeys(keys):
        if keys.count(key) > 1:
            raise UsageError(f"--set {key} is given twice", "give it once")
    return deep_merge(*map(parse_override, assignments))


def python_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of a command of training by their names in Python."""
    renamed = {**options, "settings": assigned_settings(options["assignments"])}
    del renamed["assignments"]
    if "eval_data" in renamed:
        renamed["eval"] = renamed.pop("eval_data")
    return renamed


def overrides_from_options(paths: Mapping[str, str], options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of the options that were given; ``paths`` has the paths of theirs."""
    values = python_options(options)
    return collect_settings(paths, values, values["settings"])
