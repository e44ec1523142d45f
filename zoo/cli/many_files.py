"""Options of commands that turn many files into many."""

import click

from zoo.data.many_files.shard import FORMS
from zoo.io.output.tables import FORMATS
from zoo.io.output.vectors import ARRAY

SUFFIXES = (*FORMATS, ARRAY)

shard_option = click.option(
    "--shard",
    metavar="K/N",
    help=f"Compute every N-th file from the K-th on, counted from 1: {FORMS}.",
)
suffix_option = click.option(
    "--output-suffix",
    "suffix",
    type=click.Choice(SUFFIXES),
    help="Ending of the files of a folder.  [default: the input's of tables, else .jsonl]",
)
files_options = (suffix_option, shard_option)
