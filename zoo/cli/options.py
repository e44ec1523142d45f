"""Options shared by several commands: one name for one thing."""

import functools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import click

from zoo.cli import output
from zoo.cli.completion import SHARED_TYPES
from zoo.cli.output import only_results
from zoo.errors import did_you_mean
from zoo.exporting.targets import BUILT_IN, target_names
from zoo.io.local import Use, require_local
from zoo.io.numbers import parse_float, parse_int
from zoo.overrides import override

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

Function = TypeVar("Function", bound=Callable[..., Any])
TORCH_BACKENDS = ("auto", "cpu", "cuda")  # backends besides the export targets


class IntegerRange(click.IntRange):
    """Range of integers, written in ASCII digits; see ``zoo.io.numbers``."""

    @override
    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, str) and parse_int(value) is None:
            self.fail(f"{value!r} is not a valid integer.", param, ctx)
        number: int = super().convert(value, param, ctx)
        return number

    @override
    def _describe_range(self) -> str:
        return "" if self.min is None and self.max is None else super()._describe_range()


class FiniteRange(click.FloatRange):
    """Range of finite numbers, written as ASCII decimals; see ``zoo.io.numbers``."""

    @override
    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        if isinstance(value, str) and parse_float(value) is None:
            self.fail(f"{value!r} is not a finite number.", param, ctx)
        number: float = super().convert(value, param, ctx)
        return number

    @override
    def _describe_range(self) -> str:
        # click writes ``x<=None`` for a range without bounds
        return "" if self.min is None and self.max is None else super()._describe_range()


class TargetChoice(click.Choice[str]):
    """Choice of an export target, or of a word. Plugins' targets are looked up on use."""

    def __init__(self, words: Sequence[str] = ()) -> None:
        super().__init__((*words, *BUILT_IN))

    @override
    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if value not in self.choices:
            self.choices = self._all()
        return super().convert(value, param, ctx)

    @override
    def get_invalid_choice_message(self, value: Any, ctx: click.Context | None) -> str:
        message = super().get_invalid_choice_message(value, ctx).removesuffix(".")
        return "; ".join(filter(None, (message, did_you_mean(value, self.choices))))

    @override
    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> "list[CompletionItem]":
        self.choices = self._all()
        return super().shell_complete(ctx, param, incomplete)

    def _all(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys((*self.choices, *target_names())))


class TargetOption(click.Option):
    """Option whose help ends with the names of all targets."""

    @override
    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        record = super().get_help_record(ctx)
        return record and (record[0], record[1].format(targets=", ".join(target_names())))


class ReferenceType(click.types.StringParamType):
    """Reference to a model, or to its family if the metavar says so; shells complete it."""

    @override
    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        require_local(value, "model")
        return super().convert(value, param, ctx)

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> "list[CompletionItem]":
        """Complete names, and directories of the working directory; otherwise any path."""
        from click.shell_completion import CompletionItem

        from zoo.hub import registry
        from zoo.hub.reference import stored_names
        from zoo.plugins import installed

        names = {*registry.entries(plugins=False), *installed(), *stored_names()}
        takes_config = ".yaml" in (param.metavar or "")
        paths = [*Path().glob("[!.]*/"), *(Path().glob("[!.]*.yaml") if takes_config else ())]
        names |= {path.name for path in paths if path.name.isprintable()}
        matching = sorted(name for name in names if name.startswith(incomplete))
        kind = "file" if takes_config else "dir"
        return [CompletionItem(name) for name in matching] or [
            CompletionItem(incomplete, type=kind)
        ]


class PathOrText(click.types.StringParamType):
    """Path of a file, or a text, which a command distinguishes; a shell completes paths."""

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> "list[CompletionItem]":
        """Complete a file or directory."""
        from click.shell_completion import CompletionItem

        return [CompletionItem(incomplete, type="file")]


class PathText(PathOrText):
    """Path, pattern or ``NAME=FILE``, which a command reads or writes itself."""

    def __init__(self, use: Use = "file") -> None:
        self._use: Use = use

    @override
    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        name, separator, file = value.partition("=")
        is_named = bool(separator) and ":" not in name
        require_local(file if is_named else value, self._use)
        return super().convert(value, param, ctx)


class LocalPath(click.Path):
    """Path of this machine, as a ``Path``."""

    def __init__(self, use: Use, *, file_okay: bool = True, dir_okay: bool = True) -> None:
        super().__init__(path_type=Path, file_okay=file_okay, dir_okay=dir_okay)
        self._use: Use = use

    @override
    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        require_local(value, self._use)
        return super().convert(value, param, ctx)


class InputFile(PathText):
    """Path of a file to read, or ``-`` for standard input, which is copied to a temporary file."""

    # The command may then read it twice. The copy has the ending of its format.

    @override
    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if value != "-" or (ctx is not None and ctx.resilient_parsing):
            return super().convert(value, param, ctx)
        import shutil
        import sys

        from zoo.io.scratch import scratch_directory, writing_scratch

        assert ctx is not None, "a command converts its values"
        folder = ctx.with_resource(scratch_directory(is_only_folder=False))
        stream = sys.stdin.buffer
        head = stream.readline(1 << 20)
        path = folder / f"standard-input{_ending(head)}"
        with writing_scratch(), path.open("wb") as copy:
            copy.write(head)
            shutil.copyfileobj(stream, copy)
        return str(path)


def _ending(head: bytes) -> str:
    """Return the ending of a table or text that begins like this."""
    if head.startswith(b"PAR1"):
        return ".parquet"
    if head.removeprefix(b"\xef\xbb\xbf").lstrip().startswith(b"{"):
        return ".jsonl"
    return ".tsv" if b"\t" in head else ".csv"


class KeptFile(PathText):
    """Path of a file that a command reads again later, which standard input is not."""

    @override
    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if value == "-":
            self.fail("a run reads its data again when it is resumed; name a file", param, ctx)
        return super().convert(value, param, ctx)


REFERENCE = ReferenceType()
PATH = PathText()


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
    "text": SharedOption(("--text",), "COL", "Column, or key, of the text."),
    "pair": SharedOption(("--pair",), "COL", "Column, or key, of the second text."),
    "label": SharedOption(("--label",), "COL", "Column of the label."),
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
        from zoo.cli.preflight import check_arguments

        with only_results():
            check_arguments(click.get_current_context())
            return function(*arguments, **options)

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


class DirectoryType(LocalPath):
    """Directory to write."""

    def __init__(self) -> None:
        super().__init__("output")

    @override
    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if str(value) == "-":
            self.fail("the output is a directory, and - is standard output; name it", param, ctx)
        return super().convert(value, param, ctx)


class OutputFile(LocalPath):
    """File to write."""

    def __init__(self) -> None:
        super().__init__("output", dir_okay=False)

    @override
    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if str(value) == "-":
            self.fail("standard output has other results; name a file", param, ctx)
        return super().convert(value, param, ctx)


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
        shared_option("lock", type=LocalPath("file", dir_okay=False)),
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
