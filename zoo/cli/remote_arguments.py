"""URLs on a command line: inputs are downloaded before a command, outputs uploaded after it."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from zoo.cli import output
from zoo.cli.parameter_types import KeptFile, LocalPath, PathText, RunDirectory
from zoo.data.readers.text_io import split_name
from zoo.io.numbers import int_from_environment
from zoo.io.urls import is_remote, parse_url


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
    from zoo.io.remote.publish import publishing

    outputs = []
    for name in output_names:
        remote_output = _begin(name, local_options)
        path = remote_output.path
        local_options[name] = path if isinstance(options[name], Path) else str(path)
        outputs.append(remote_output)
    ctx.params.update(local_options)
    with output.held(), publishing(outputs):
        yield local_options


def _begin(name: str, options: dict[str, Any]) -> Any:
    """Return an output with a URL, once it is clear that it may be written."""
    from zoo.data.many_files.plan import is_many
    from zoo.io.remote.publish import RemoteOutput

    url = parse_url(options[name])
    assert url is not None, "the caller checks it"
    force = bool(options.get("force"))
    is_main = int_from_environment("RANK", 0) == 0
    if "auto_resume" in options:  # The command trains.
        run = RemoteOutput(url, "run")
        is_resumed = name == "resume" or (options["auto_resume"] and run.has_begun())
        run.begin(force=force, resume=is_resumed, is_main=is_main)
        return run
    inputs = options.get("source") or options.get("eval_data") or ()
    if isinstance(inputs, str):
        inputs = (inputs,)
    if name == "output" and "shard" in options and (is_many(inputs) or options["shard"]):
        job = RemoteOutput(url, "job", part=options["shard"] or "")
        job.begin(force=force, resume=bool(options.get("resume")))
        return job
    result = RemoteOutput(url, "output")
    result.begin(force=force, resume=bool(options.get("resume")))
    return result


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
