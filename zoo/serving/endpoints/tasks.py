"""``/run/TASK``: every task of ``zoo run``, with its options, those of plugins too."""

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from zoo.errors import UsageError, did_you_mean
from zoo.families.tasks import TaskOption
from zoo.inference.processing.inputs import record_of_object
from zoo.inference.processing.records import TextExample, validate_text
from zoo.inference.task import Task
from zoo.plugins.tasks import commands, find_tasks, load_part
from zoo.serving.endpoints import Endpoint, Interface, Record
from zoo.serving.errors import InvalidRequest, NotFound, RequestError
from zoo.serving.exchange import Exchange

if TYPE_CHECKING:
    from zoo.serving.fair_queue import RowResult


def error_body(error: RequestError) -> Any:
    """Return an error as JSON."""
    return {"error": {"message": error.message, "code": error.code}}


RUN = Interface("zoo", error_body)
GENERAL_OPTIONS = (
    TaskOption("max_seq_len", "Cut texts at this number of tokens.", int, minimum=1),
)


class RunRequest(Record):
    """Inputs of a task.

    Attributes:
        inputs: a text; a list of texts, of pairs of texts, or of objects with the keys of the
            task's JSON lines.
        model: name of the model; by default the first.
        options: options of the task, as of ``zoo run``, with underscores.
        truncate: whether texts that are too long are cut.
    """

    inputs: str | list[str | list[str] | dict[str, Any]]
    model: str | None = None
    options: dict[str, Any] = msgspec.field(default_factory=dict)
    truncate: bool | None = None


class RunResponse(msgspec.Struct):
    """Results of a task, as ``zoo run --json`` prints them."""

    task: str
    model: str
    results: list[dict[str, Any]]


async def run_task(exchange: Exchange, request: RunRequest) -> bytes:
    """Answer ``/run/TASK``."""
    name = exchange.path_parameters["task"]
    model = exchange.model(request.model)
    try:
        specs = find_tasks(name, "predict")
    except UsageError as error:
        raise NotFound(str(error)) from error
    options = task_options(name, request.options)
    task_class: type[Task] = load_part(specs[0], "predict")
    columns = task_class.columns(options, None, None)
    if "max_seq_len" in options:
        options["max_tokens"] = options.pop("max_seq_len")
    inputs = [request.inputs] if isinstance(request.inputs, str) else request.inputs
    exchange.require_count(len(inputs))
    records = []
    for number, value in enumerate(inputs):
        location = f"input {number + 1}"
        if isinstance(value, dict):
            records.append(record_of_object(value, location, task_class.keys, columns))
        else:
            records.append(_record_of_texts(value, location))
    iterator, arguments = task_class.from_command(iter(records), options)
    records = list(iterator)
    task = model.task(name, **arguments)
    if type(task).run_chunks is not Task.run_chunks or task.splits_records:
        # Its results depend on all inputs together, or an input has several.
        results = await exchange.call(model, task, lambda: list(task.run(records)))
        exchange.texts += len(records)
    else:
        rows = await exchange.run(model, task, records, truncate=request.truncate)
        results = await asyncio.to_thread(_joined_results, task, rows)
    return msgspec.json.encode(RunResponse(specs[0].command, model.name, results))


def _joined_results(task: Task, rows: "Sequence[RowResult]") -> list[dict[str, Any]]:
    return [task.join_result(row.item, row.added) for row in rows]


def _record_of_texts(value: str | list[str], location: str) -> TextExample:
    if isinstance(value, str):
        return TextExample(validate_text(value, location), location=location)
    if len(value) != 2:
        raise InvalidRequest(f"{location} is a list of {len(value)} texts, and a pair has two")
    first, second = (validate_text(text, location) for text in value)
    return TextExample(first, second, location=location)


def served_options(name: str) -> dict[str, TaskOption]:
    """Return the options of a task that requests may set: all but those that name files."""
    options: dict[str, TaskOption] = {}
    for spec in find_tasks(name, "predict"):
        for option in spec.run_options:
            if option.type is not Path and option.name != "stream":
                options.setdefault(option.name, option)
        for click_option in load_part(spec, "predict").options:
            converted = _from_click(click_option)
            if converted is not None:
                options.setdefault(converted.name, converted)
    for option in GENERAL_OPTIONS:
        options.setdefault(option.name, option)
    return options


def _from_click(option: click.Option) -> TaskOption | None:
    """Return the declaration of an option that a plugin's class has; ``None`` for a file."""
    if isinstance(option.type, click.Path | click.File) or option.name is None:
        return None
    types: dict[type, type] = {click.types.IntParamType: int, click.types.FloatParamType: float}
    value_type: type = bool if option.is_flag else str
    for click_type, python_type in types.items():
        if isinstance(option.type, click_type):
            value_type = python_type
    return TaskOption(
        option.name, option.help or "", value_type, default=option.default, multiple=option.multiple
    )


def task_options(name: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of a task, of a request or default ones.

    Raises:
        InvalidRequest: one is unknown, names a file, or is of another type or out of range.
    """
    options = served_options(name)
    values: dict[str, Any] = {}
    for spec in reversed(find_tasks(name, "predict")):
        for option in spec.run_options:
            values[option.name] = () if option.multiple else option.default
    values.pop("stream", None)
    for key, value in given.items():
        if key not in options:
            hint = did_you_mean(key, list(options)) or f"it has {', '.join(sorted(options))}"
            raise InvalidRequest(f"{name} has no option {key!r} in a request; {hint}")
        values[key] = _option_value(options[key], value)
    return values


def _option_value(option: TaskOption, value: Any) -> Any:
    if value is None:
        return () if option.multiple else option.default
    if option.multiple:
        items = value if isinstance(value, list) else [value]
        return tuple(_single_value(option, item) for item in items)
    return _single_value(option, value)


def _single_value(option: TaskOption, value: Any) -> Any:
    """Return a value of an option after checking it."""
    accepted = (int, float) if option.type is float else (option.type,)
    is_number_as_bool = isinstance(value, bool) and option.type is not bool
    if not isinstance(value, accepted) or is_number_as_bool:
        name = {str: "a string", int: "an integer", float: "a number", bool: "true or false"}
        raise InvalidRequest(
            f"{option.name} is {name.get(option.type, 'of another type')}", parameter=option.name
        )
    if option.choices and value not in option.choices:
        raise InvalidRequest(
            f"{option.name} is one of {', '.join(option.choices)}", parameter=option.name
        )
    if isinstance(value, int | float) and not isinstance(value, bool):
        is_low = option.minimum is not None and value < option.minimum
        is_high = option.maximum is not None and value > option.maximum
        is_bound = option.exclusive and value in (option.minimum, option.maximum)
        if is_low or is_high or is_bound:
            raise InvalidRequest(f"{option.name} is out of range", parameter=option.name)
    return value


def served_tasks() -> dict[str, str]:
    """Return the name of each task -> its summary."""
    return commands()


ENDPOINTS = (
    Endpoint("/run/{task}", "Run a task of zoo run.", RUN, run_task, RunRequest, RunResponse),
)
