"""Options shared by several commands: one name for one thing."""

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

import click

from zoo.api.arguments import TORCH_BACKENDS
from zoo.cli import output
from zoo.cli.completion import SHARED_TYPES
from zoo.cli.output import only_results
from zoo.cli.parameter_types import (
    PATH,
    REFERENCE,
    DirectoryType,
    IntegerRange,
    LocalPath,
    TargetChoice,
)
from zoo.exporting.targets import target_names
from zoo.overrides import override

Function = TypeVar("Function", bound=Callable[..., Any])


class TargetNameOption(click.Option):
    """Option whose help ends with the names of all targets."""

    @override
    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        record = super().get_help_record(ctx)
        return record and (record[0], record[1].format(targets=", ".join(target_names())))


class SharedOption(NamedTuple):
    """An option that several commands have."""

    # ``SHARED`` declares what several commands have, and ``python -m tools.shared_options`` writes
    # the table of the documentation from it.

    flags: tuple[str, ...]  # names on the command line
    metavar: str  # placeholder of the value in help, or empty for a flag
    meaning: str  # what it is in every command, for the documentation and as the default of help


SHARED = {
    "source": SharedOption(("--input",), "FILE", "Texts, or a table, to run a model on."),
    "train": SharedOption(
        ("--train",), "PATH", "Training data: text, a built corpus, or a table with labels."
    ),
    "eval_data": SharedOption(("--eval",), "PATH", "Evaluation data."),
    "weight": SharedOption(
        ("--weight",), "NAME=W", "Share of the source NAME in the training data."
    ),
    "text": SharedOption(("--text",), "COL", "Column, or key, of the text."),
    "pair": SharedOption(("--pair",), "COL", "Column, or key, of the second text."),
    "label": SharedOption(("--label",), "COL", "Column of the label."),
    "metric": SharedOption(
        ("--metric",), "NAME[:SETTING=VALUE,...]", "Metric of predictions, such as bleu."
    ),
    "skip_invalid": SharedOption(
        ("--skip-invalid",), "", "Leave out rows that cannot be used, and count them."
    ),
    "max_seq_len": SharedOption(
        ("--max-seq-len",), "N", "Largest number of tokens of a text; the rest is cut."
    ),
    "output": SharedOption(("-o", "--output"), "PATH", "File or directory to write."),
    "figures": SharedOption(("--figures",), "DIR", "Directory for figures, as SVG."),
    "force": SharedOption(("--force",), "", "Replace the output if zoo wrote it."),
    "excel_safe": SharedOption(
        ("--excel-safe",), "", "In CSV and TSV, precede by ' what a spreadsheet would compute."
    ),
    "task": SharedOption(("--task",), "TASK", "Name of the task; the help lists them."),
    "seed": SharedOption(("--seed",), "N", "Random seed."),
    "backend": SharedOption(("--backend",), "NAME", "Where the model runs."),
    "device": SharedOption(("--device",), "D", "Device, such as cpu or cuda:1."),
    "dtype": SharedOption(("--dtype",), "D", "Dtype, such as float32, bfloat16 or int8."),
    "threads": SharedOption(("--threads",), "N", "Number of CPU threads."),
    "adapter": SharedOption(
        ("--adapter",), "DIR", "Apply an adapter to the model; in training, the method of one."
    ),
    "global_tokens": SharedOption(
        ("--global-tokens",),
        "RULE",
        "Tokens with global attention, in models that attend to windows: task, none, first, "
        "question, choice, separators, or positions such as 0,5,17.  [default: the model's]",
    ),
    "tokenizer": SharedOption(
        ("--tokenizer",), "REF", "Model whose tokenizer is used, or train to train one."
    ),
    "size": SharedOption(("--size",), "S", "Size of a model with random weights."),
    "learning_rate": SharedOption(
        ("--learning-rate",), "R", "Highest learning rate, which the schedule multiplies."
    ),
    "epochs": SharedOption(("--epochs",), "N", "Number of passes over the training data."),
    "max_steps": SharedOption(("--max-steps",), "N", "Number of optimizer steps."),
    "max_time": SharedOption(
        ("--max-time",), "TIME", "Stop training after this time, such as 90s, 3m or 1h30m."
    ),
    "batch_size": SharedOption(("--batch-size",), "N", "Number of rows per batch."),
    "report_to": SharedOption(
        ("--report-to",), "LOGGER", "tensorboard (default), wandb, mlflow, or a plugin's logger."
    ),
    "assignments": SharedOption(("--set",), "KEY=VALUE", "Override any setting."),
    "licence": SharedOption(
        ("--licence", "--license"), "ID", "Licence on the model card, such as apache-2.0."
    ),
    "revision": SharedOption(("--revision",), "R", "Branch, tag or commit of the repository."),
    "offline": SharedOption(
        ("--offline",), "", "Open no connection; use files that were downloaded before."
    ),
    "lock": SharedOption(
        ("--lock",),
        "FILE",
        "File that pins revisions and digests.  [default: ./zoo.lock if it exists]",
    ),
    "as_json": SharedOption(("--json",), "", "Print one JSON object."),
    "verbose": SharedOption(
        ("-v", "--verbose"), "", "Show log records of all libraries from level INFO."
    ),
    "quiet": SharedOption(
        ("-q", "--quiet"), "", "Show no progress and no notes; warnings and errors stay."
    ),
}


def shared_option(
    name: str,
    description: str | None = None,
    *,
    synonyms: Sequence[str] = (),
    **attributes: Any,
) -> Callable[[Function], Function]:
    """Return an option of ``SHARED``."""
    flags, metavar, meaning = SHARED[name]
    if not metavar:
        attributes["is_flag"] = True
    elif name in SHARED_TYPES:
        attributes = {"type": SHARED_TYPES[name], "metavar": metavar, **attributes}
    elif not isinstance(attributes.get("type"), click.Choice):  # help lists its choices
        attributes.setdefault("metavar", metavar)
    flags = (*flags, *synonyms)
    return click.option(*flags, name, help=description or meaning, **attributes)


def common_options(function: Function) -> Function:
    """Add the options of all commands: ``--json``, ``--verbose`` and ``--quiet``.

    The arguments are checked first. While the command runs, what libraries and plugins print goes
    to standard error.
    """

    @functools.wraps(function)
    def run(*arguments: Any, **options: Any) -> Any:
        from zoo.cli.preflight import check_arguments, require_one_process
        from zoo.cli.remote_arguments import local_arguments

        with only_results():
            context = click.get_current_context()
            require_one_process(context)
            with local_arguments(context, options) as local_options:
                check_arguments(context)
                return function(*arguments, **local_options)

    return _all(shared_option("as_json"), verbosity_options)(run)  # type: ignore[return-value]


def verbosity_options(function: Function) -> Function:
    """Add ``--verbose`` and ``--quiet``."""
    return _all(
        shared_option("verbose", expose_value=False, callback=_set_verbosity),
        shared_option("quiet", expose_value=False, callback=_set_verbosity),
    )(function)


def _set_verbosity(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    if not value or ctx.resilient_parsing:
        return
    if "zoo.verbosity" in ctx.meta:
        raise click.UsageError("--verbose and --quiet exclude each other", ctx)
    ctx.meta["zoo.verbosity"] = param.name
    output.set_verbosity(1 if param.name == "verbose" else -1)


def count_option(
    name: str, description: str, *, minimum: int = 1, default: int | None = None
) -> Callable[[Function], Function]:
    """Return an option that takes an integer, ``minimum`` or more."""
    return click.option(
        name,
        type=IntegerRange(minimum),
        metavar="N",
        default=default,
        show_default=default is not None,
        help=description,
    )


def output_option(
    description: str = "Output directory.", **attributes: Any
) -> Callable[[Function], Function]:
    """Return the option of a directory to write."""
    return shared_option("output", description, metavar="DIR", type=DirectoryType(), **attributes)


force_option = shared_option("force", "Replace the output directory if zoo wrote it.")
seed_option = shared_option("seed", type=IntegerRange(), default=0, show_default=True)
offline_option = shared_option("offline")
device_option = shared_option("device")


reference_argument = click.argument("ref", metavar="REF", type=REFERENCE)


def _all(*options: Callable[[Function], Function]) -> Callable[[Function], Function]:
    def decorate(function: Function) -> Function:
        for option in reversed(options):
            function = option(function)
        return function

    return decorate


def hub_options(function: Function) -> Function:
    """Add the options of commands that download."""
    return _all(
        shared_option("revision"),
        offline_option,
        shared_option("lock", type=LocalPath("file", dir_okay=False, takes_url=False)),
    )(function)


def backend_options(function: Function) -> Function:
    """Add the options of commands that run a model."""
    return _all(
        shared_option(
            "backend",
            "Where the model runs; auto is the fastest that zoo bench measured for the model "
            "and --dtype on this machine, else cuda, else cpu.",
            type=TargetChoice(TORCH_BACKENDS),
            default="auto",
            show_default=True,
        ),
        device_option,
        shared_option("dtype", "Dtype of the computation, such as float32, bfloat16 or int8."),
        shared_option("threads", type=IntegerRange(1)),
    )(function)


adapter_option = shared_option(
    "adapter",
    "Apply an adapter to the model; may be repeated.",
    multiple=True,
    type=PATH,
    metavar="DIR",
)
global_tokens_option = shared_option("global_tokens")
