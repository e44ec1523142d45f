"""Options shared by several commands."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from zoo.cli import output
from zoo.cli.output import redirect_prints
from zoo.io.numbers import parse_float, parse_int
from zoo.overrides import override

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

Function = TypeVar("Function", bound=Callable[..., Any])


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


class ReferenceType(click.types.StringParamType):
    """Reference to a model, or to its family if the metavar says so; shells complete it."""

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


class PathText(click.types.StringParamType):
    """Path, pattern or ``NAME=FILE``, which a command reads itself; a shell completes paths."""

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> "list[CompletionItem]":
        """Complete a file or directory."""
        from click.shell_completion import CompletionItem

        return [CompletionItem(incomplete, type="file")]


REFERENCE, PATH = ReferenceType(), PathText()


def common_options(function: Function) -> Function:
    """Add the options of all commands: ``--json``, ``--verbose`` and ``--quiet``.

    While the command runs, what libraries and plugins print goes to standard error.
    """
    return _all(
        click.option("--json", "as_json", is_flag=True, help="Print one JSON object."),
        verbosity_options,
    )(redirect_prints(function))


def verbosity_options(function: Function) -> Function:
    """Add ``--verbose`` and ``--quiet``."""
    return _all(
        click.option(
            "-v",
            "--verbose",
            is_flag=True,
            expose_value=False,
            callback=_set_verbosity,
            help="Show log records of all libraries from level INFO.",
        ),
        click.option(
            "-q",
            "--quiet",
            is_flag=True,
            expose_value=False,
            callback=_set_verbosity,
            help="Show no progress and no notes; warnings and errors stay.",
        ),
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


output_option = click.option(
    "-o", "--output", type=click.Path(path_type=Path), help="Output directory."
)
force_option = click.option(
    "--force", is_flag=True, help="Replace the output directory if zoo wrote it."
)
seed_option = click.option(
    "--seed", type=IntegerRange(), default=0, show_default=True, help="Random seed."
)


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
        click.option("--revision", metavar="R", help="Branch, tag or commit of the repository."),
        click.option(
            "--offline",
            is_flag=True,
            help="Open no connection; use files that were downloaded before.",
        ),
        click.option(
            "--lock",
            type=click.Path(path_type=Path, dir_okay=False),
            help="File that pins revisions and digests.  [default: ./zoo.lock if it exists]",
        ),
    )(function)


def backend_options(function: Function) -> Function:
    """Add the options of commands that run a model."""
    return _all(
        click.option(
            "--backend",
            type=click.Choice(["auto", "cpu", "cuda", "onnx"]),
            default="auto",
            show_default=True,
            help="Where the model runs; auto is the fastest that zoo bench measured for the model "
            "and --dtype on this machine, else cuda, else cpu.",
        ),
        click.option("--device", metavar="D", help="Device, such as cpu or cuda:1."),
        click.option(
            "--dtype",
            metavar="D",
            help="Dtype of the computation, such as float32, bfloat16 or int8.",
        ),
        count_option("--threads", "Number of CPU threads."),
    )(function)
