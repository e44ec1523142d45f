"""Options that mean the same in every command."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from zoo.cli.output import reporting

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

Function = TypeVar("Function", bound=Callable[..., Any])


def json_option(function: Function) -> Function:
    """Add ``--json``, and keep what others print while the command runs out of its results."""
    option = click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
    return option(reporting(function))


output_option = click.option(
    "-o", "--output", type=click.Path(path_type=Path), help="The directory to write."
)
force_option = click.option(
    "--force", is_flag=True, help="Replace an existing directory that zoo wrote."
)
seed_option = click.option("--seed", type=int, default=0, show_default=True, help="Random seed.")


def _complete(ctx: click.Context, param: click.Parameter, text: str) -> "list[CompletionItem]":
    """Return the names and the directories here that begin so, or leave paths to the shell."""
    from click.shell_completion import CompletionItem

    from zoo.hub import registry
    from zoo.hub.reference import stored_names
    from zoo.plugins import installed

    names = {*registry.entries(plugins=False), *installed(), *stored_names()}
    names |= {path.name for path in Path().glob("[!.]*/")}
    found = sorted(name for name in names if name.startswith(text))
    return [CompletionItem(name) for name in found] or [CompletionItem(text, type="dir")]


reference_argument = click.argument("ref", metavar="REF", shell_complete=_complete)


def _all(*options: Callable[[Function], Function]) -> Callable[[Function], Function]:
    def decorate(function: Function) -> Function:
        for option in reversed(options):
            function = option(function)
        return function

    return decorate


def hub_options(function: Function) -> Function:
    """Add the options of commands that may download."""
    return _all(
        click.option("--revision", metavar="R", help="Branch, tag or commit of the repository."),
        click.option("--offline", is_flag=True, help="Open no connection; use what is here."),
        click.option(
            "--lock",
            type=click.Path(path_type=Path, dir_okay=False),
            help="Pin revisions and digests in this file (./zoo.lock is used if it exists).",
        ),
    )(function)


def backend_options(function: Function) -> Function:
    """Add the options of commands that compute."""
    return _all(
        click.option(
            "--backend",
            type=click.Choice(["auto", "cpu", "cuda", "onnx"]),
            default="auto",
            show_default=True,
            help="What computes.",
        ),
        click.option("--device", metavar="D", help="Such as cpu or cuda:1."),
        click.option("--dtype", metavar="D", help="Such as float32 or bfloat16."),
        click.option("--threads", type=click.IntRange(1), metavar="N", help="CPU threads."),
    )(function)
