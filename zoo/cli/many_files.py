"""Options of commands that turn many files into many."""

from typing import get_args

import click

from zoo.api.arguments import OutputSuffix
from zoo.cli.options import count_option
from zoo.data.many_files.shard import FORMS

shard_option = click.option(
    "--shard",
    metavar="K/N",
    help=f"Compute every N-th file from the K-th on, counted from 1: {FORMS}.",
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
