"""Arguments of the functions of ``zoo``: references, paths, choices and ranges of numbers."""

import functools
import inspect
from collections.abc import Callable, Sequence
from os import PathLike, fspath
from pathlib import Path
from typing import Any, Literal, NamedTuple, ParamSpec, TypeVar, cast, get_args, get_origin

from zoo.api.remote_outputs import local_outputs, remote_outputs, with_urls
from zoo.errors import UsageError, did_you_mean
from zoo.io.limits import MAX_MARGIN, MAX_THREADS
from zoo.io.local import require_local
from zoo.io.remote.cache import fetch, forget_snapshots
from zoo.io.urls import parse_url

Parameters = ParamSpec("Parameters")
Returned = TypeVar("Returned")

AnyPath = str | PathLike[str]
AnyPaths = AnyPath | Sequence[AnyPath]
OutputSuffix = Literal[".jsonl", ".ndjson", ".csv", ".tsv", ".parquet", ".npy"]
TORCH_BACKENDS = ("auto", "cpu", "cuda")  # backends besides the export targets


class Range(NamedTuple):
    """Range of a number, with its ends unless it is open."""

    minimum: float
    maximum: float | None = None
    is_open: bool = False  # whether the minimum itself is excluded


# Parameter -> its range, in all functions that have it. The options of commands have the same.
RANGES = {
    "actors": Range(1),
    "batch_size": Range(1),
    "cpus_per_actor": Range(1),
    "epochs": Range(0, is_open=True),
    "freeze": Range(0),
    "global_batch_tokens": Range(1),
    "head": Range(1),
    "hidden_size": Range(1),
    "intervals": Range(1),
    "l2": Range(0),
    "layer": Range(0),
    "learning_rate": Range(0, is_open=True),
    "limit": Range(1),
    "margin": Range(0, MAX_MARGIN),
    "max_batch_tokens": Range(1),
    "max_drop": Range(0, 1),
    "max_seq_len": Range(1),
    "max_steps": Range(1),
    "min_retention": Range(0, is_open=True),
    "seeds": Range(1),
    "threads": Range(1, MAX_THREADS),
    "top_k": Range(1),
    "validation_fraction": Range(0, 1),
    "vocab_size": Range(1),
    "workers": Range(0),
}


def checked(function: Callable[Parameters, Returned]) -> Callable[Parameters, Returned]:
    """Check choices and ranges of the arguments, and let outputs be URLs.

    A parameter that is annotated with a ``Literal`` takes its values, and one of ``RANGES`` takes
    numbers of its range. The function then raises ``UsageError`` for others. It gets a path of this
    machine for an output that is a URL, and the output is uploaded when the function returns.
    """
    signature = inspect.signature(function)
    options_name = _name_of_options(signature)

    @functools.wraps(function)
    def call(*arguments: Parameters.args, **options: Parameters.kwargs) -> Returned:
        forget_snapshots()
        bound = signature.bind(*arguments, **options)
        for name, value in bound.arguments.items():
            if value is None or isinstance(value, bool):
                continue
            annotation = signature.parameters[name].annotation
            choices = literal_values(annotation)
            if choices:
                several = [value] if isinstance(value, str) else value
                for choice in several:
                    require_choice(name, choice, choices)
            # `head` is a number in `look`, and a name in `convert`.
            takes_text = annotation is str or str in get_args(annotation)
            if name in RANGES and not takes_text:
                require_range(name, value, RANGES[name])
        bound.apply_defaults()
        call_values = {**bound.arguments, **bound.arguments.get(options_name, {})}
        output_names = remote_outputs(call_values)
        if not output_names:
            return function(*arguments, **options)
        with local_outputs(call_values, output_names) as local_values:
            local_paths: dict[str, Any] = {name: local_values[name] for name in output_names}
            result = function(*arguments, **{**options, **local_paths})
        return cast(Returned, with_urls(result))

    return call


def _name_of_options(signature: inspect.Signature) -> str:
    """Return the name of the parameter for further options, such as ``options``; empty without."""
    for name, parameter in signature.parameters.items():
        if parameter.kind is inspect.Parameter.VAR_KEYWORD:
            return name
    return ""


def literal_values(annotation: Any) -> list[str]:
    """Return the values of the literals in an annotation; none if it takes any text."""
    if get_origin(annotation) is Literal:
        return [value for value in get_args(annotation) if isinstance(value, str)]
    if annotation is str:
        return []
    values = []
    for part in get_args(annotation):
        if part is str:
            return []
        values += literal_values(part)
    return list(dict.fromkeys(values))


def require_choice(name: str, value: Any, choices: Sequence[str]) -> None:
    """Check that an argument is one of several texts."""
    if value not in choices:
        hint = did_you_mean(str(value), list(choices)) or f"it takes {', '.join(choices)}"
        raise UsageError(f"{name} is {value!r}", hint)


def require_backend(name: str) -> None:
    """Check the name of a backend, which may be a plugin's export target."""
    from zoo.exporting.targets import target_names

    require_choice("backend", name, [*TORCH_BACKENDS, *target_names()])


def require_range(name: str, value: Any, limits: Range) -> None:
    """Check that an argument is a number of a range."""
    if not isinstance(value, int | float):
        raise UsageError(f"{name} is {value!r}", "it takes a number")
    is_low = value <= limits.minimum if limits.is_open else value < limits.minimum
    is_high = limits.maximum is not None and value > limits.maximum
    if not is_low and not is_high and value == value:  # NaN differs from itself.
        return
    bounds = f"{'more than' if limits.is_open else 'at least'} {limits.minimum:g}"
    if limits.maximum is not None:
        bounds += f" and at most {limits.maximum:g}"
    raise UsageError(f"{name} is {value}", f"it takes a number that is {bounds}")


def as_reference(ref: AnyPath) -> str:
    """Return a reference to a model as text; a URL of a web server is refused."""
    url = parse_url(ref)
    if url is None or url.is_web:
        require_local(ref, "model")
    return fspath(ref)


def as_path(path: AnyPath | None, use: Literal["file", "output"]) -> Path | None:
    """Return a path, or ``None``; what a URL names is downloaded.

    Raises:
        UsageError: it is a URL that cannot be read, or that an output of a function cannot have.
    """
    if path is None:
        return None
    if use == "file":
        path = fetch(path)
    require_local(path, use)
    return Path(path)
