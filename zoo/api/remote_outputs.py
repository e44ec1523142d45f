"""Outputs with a URL: commands and functions write them on this machine, and then upload them."""

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import Any

from zoo.errors import with_places
from zoo.io.numbers import int_from_environment
from zoo.io.remote.paths import UrlPath
from zoo.io.urls import RemoteUrl, is_remote, parse_url

# Parameters of functions that name a file or folder to write. A run that is resumed is written.
OUTPUTS = ("output", "predictions", "report", "figures", "resume")
# Parameters that name the inputs of a job: of commands, and of functions.
_INPUTS = ("source", "eval_data", "input", "eval")


def remote_outputs(values: Mapping[str, Any]) -> list[str]:
    """Return the names of a function's outputs that are URLs."""
    names = []
    for name in OUTPUTS:
        value = values.get(name)
        if isinstance(value, str | PathLike) and is_remote(value):
            names.append(name)
    return names


@contextmanager
def local_outputs(values: Mapping[str, Any], names: Iterable[str]) -> Iterator[dict[str, Any]]:
    """Yield arguments with paths of this machine in place of outputs that are URLs.

    The outputs are uploaded at the end of the block. After an error, only what a run has written is
    uploaded.

    Args:
        values: arguments of a command or function, which say whether it resumes, replaces or
            computes a shard.
        names: names of the outputs.

    Raises:
        UsageError: an output exists, or cannot be written.
        SourceError: the store is not available.
    """
    local_values = dict(values)
    output_names = list(names)
    if not output_names:
        yield local_values
        return
    from zoo.io.remote.publish import publishing

    outputs = []
    for name in output_names:
        url = parse_url(values[name])
        assert url is not None, "the caller checks it"
        remote_output = _begin(name, url, local_values)
        is_path = isinstance(values[name], Path)
        local_values[name] = remote_output.path if is_path else str(remote_output.path)
        outputs.append(remote_output)
    with publishing(outputs):
        yield local_values


def _begin(name: str, url: RemoteUrl, values: Mapping[str, Any]) -> Any:
    """Return an output with a URL, once it is clear that it may be written."""
    from zoo.data.many_files.plan import is_many
    from zoo.io.remote.publish import RemoteOutput

    force = bool(values.get("force"))
    is_resumed = bool(values.get("resume"))
    if "auto_resume" in values:  # It trains.
        run = RemoteOutput(url, "run")
        is_main = int_from_environment("RANK", 0) == 0
        is_resumed = name == "resume" or (bool(values["auto_resume"]) and run.has_begun())
        run.begin(force=force, resume=is_resumed, is_main=is_main)
        return run
    if name == "output" and "shard" in values:
        shard = values["shard"]
        if shard or is_many(_inputs(values)):
            job = RemoteOutput(url, "job", part=shard or "")
            job.begin(force=force, resume=is_resumed)
            return job
    output = RemoteOutput(url, "output")
    output.begin(force=force, resume=is_resumed)
    return output


def _inputs(values: Mapping[str, Any]) -> list[str]:
    """Return the inputs of a command or function."""
    for name in _INPUTS:
        inputs = values.get(name)
        if isinstance(inputs, str | PathLike):
            return [str(inputs)]
        if inputs:
            return [str(path) for path in inputs]
    return []


def with_urls(result: Any) -> Any:
    """Return the result of a function with URLs in place of paths that it no longer has here."""
    if isinstance(result, Path):
        text = with_places(str(result))
        return UrlPath(text) if is_remote(text) else result
    if type(result) is tuple:
        return tuple(with_urls(item) for item in result)
    if isinstance(result, dict):
        return {key: with_urls(item) for key, item in result.items()}
    if not dataclasses.is_dataclass(result) or isinstance(result, type):
        return result
    changes = {}
    for field in dataclasses.fields(result):
        value = getattr(result, field.name)
        changed_value = with_urls(value)
        if field.init and changed_value != value:
            changes[field.name] = changed_value
    return dataclasses.replace(result, **changes) if changes else result
