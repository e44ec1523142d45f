"""URLs on a command line: inputs are downloaded before a command, outputs uploaded after it."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from zoo.cli import output
from zoo.cli.parameter_types import KeptFile, LocalPath, PathText, RunDirectory
from zoo.data.readers.text_io import split_name
from zoo.io.urls import is_remote


@contextlib.contextmanager
def local_arguments(ctx: click.Context, options: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the options of a command with local paths in place of URLs.

    What a run reads again when it is resumed keeps its URL, which the run records. Outputs are
    uploaded at the end of the block, and the results that it prints come after that.
    """
    local_options = dict(options)
    output_names = []
    for parameter in ctx.command.params:
        name = parameter.name or ""
        parameter_type = parameter.type
        if name not in options or isinstance(parameter_type, KeptFile):
            continue
        if not isinstance(parameter_type, PathText | LocalPath) or not parameter_type.takes_url:
            continue
        is_output = parameter_type.use == "output" or isinstance(parameter_type, RunDirectory)
        if not is_output:
            local_options[name] = _fetch(options[name])
        elif options[name] is not None and is_remote(options[name]):
            output_names.append(name)
    ctx.params.update(local_options)
    if not output_names:
        yield local_options
        return
    from zoo.api.remote_outputs import local_outputs

    with output.held(), local_outputs(local_options, output_names) as command_options:
        ctx.params.update(command_options)
        yield command_options


def _fetch(value: Any) -> Any:
    """Return an argument, or several, with local paths in place of URLs."""
    if isinstance(value, tuple):
        return tuple(map(_fetch, value))
    if not isinstance(value, str | Path):
        return value
    name, file = split_name(str(value))
    if not is_remote(file):
        return value
    from zoo.io.remote.cache import fetch

    path = fetch(file if name else value)
    if isinstance(value, Path):
        return path
    return f"{name}={path}" if name else str(path)
