"""URLs on a command line: what a command reads is downloaded before it begins."""

from pathlib import Path
from typing import Any

import click

from zoo.cli.parameter_types import KeptFile, LocalPath, PathText
from zoo.data.readers.text_io import split_name
from zoo.io.urls import is_remote


def fetch_arguments(ctx: click.Context, options: dict[str, Any]) -> dict[str, Any]:
    """Return the options of a command with local paths in place of the URLs that it reads.

    What a run reads again when it is resumed keeps its URL, which the run records.
    """
    local_options = dict(options)
    for parameter in ctx.command.params:
        name = parameter.name or ""
        parameter_type = parameter.type
        if name not in options or isinstance(parameter_type, KeptFile):
            continue
        if isinstance(parameter_type, PathText | LocalPath) and parameter_type.use == "file":
            local_options[name] = _fetch(options[name])
            ctx.params[name] = local_options[name]
    return local_options


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
