"""Options of commands that turn many files into many."""

from collections.abc import Callable
from typing import Any, TypeVar, get_args

import click

from zoo.api.arguments import OutputSuffix
from zoo.cli.completion import NamesType
from zoo.cli.options import count_option
from zoo.data.many_files.shard import FORMS, KUBERNETES, SLURM

Function = TypeVar("Function", bound=Callable[..., Any])


def shards(ctx: click.Context) -> tuple[str, ...]:
    """Return the beginnings of shards that have a name."""
    return (SLURM, f"{KUBERNETES}/")


def shard_type_option(help_text: str) -> Callable[[Function], Function]:
    """Return the option ``--shard``; shells complete the names of schedulers."""
    return click.option("--shard", type=NamesType(shards), metavar="K/N", help=help_text)


shard_option = shard_type_option(
    f"Compute every N-th file from the K-th on, counted from 1: {FORMS}."
)
suffix_option = click.option(
    "--output-suffix",
    "suffix",
    type=click.Choice(get_args(OutputSuffix)),
    help="Ending of the files of a folder.  [default: the input's of tables, else .jsonl]",
)
engine_options = (
    click.option(
        "--engine",
        type=click.Choice(["ray"]),
        help="Run on many files in actors of Ray.  [default: in this process]",
    ),
    count_option("--actors", "Number of actors, each with a model.  [default: 1]"),
    count_option("--cpus-per-actor", "CPUs and threads of an actor.  [default: 1]"),
)
files_options = (suffix_option, shard_option, *engine_options)
