"""A task over a file of texts or a table, into another file: ``zoo run --input --output``."""

import contextlib
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from blake3 import blake3

from zoo.data.many_files.plan import FileStamp
from zoo.errors import UsageError, did_you_mean
from zoo.inference.processing.inputs import InputFormat, read_records, require_first
from zoo.io.digests.files import hash_file
from zoo.io.json import dump_json
from zoo.io.output.parquet import require_pyarrow
from zoo.io.output.resumable import check_output, resumable_output
from zoo.io.output.tables import FORMATS, PARQUET, require_cells
from zoo.io.output.vectors import ARRAY
from zoo.io.remote.cache import fetch
from zoo.plugins.tasks import find_tasks, load_part

if TYPE_CHECKING:
    from zoo.inference.processing.records import TextExample
    from zoo.inference.task import Task

TEXT_FORMATS = (".jsonl", ".ndjson")  # formats whose rows only have the keys of their result


@dataclass(frozen=True)
class TaskInput:
    """Input of a task, and the task's options."""

    records: "Iterator[TextExample]"  # the texts
    options: dict[str, Any]  # arguments of the task's class
    path: Path | None  # file that is read; ``None`` for texts and for standard input
    # What the results depend on, besides the model; ``None`` if the input cannot be read again.
    settings: dict[str, Any] | None
    # Reads the texts once more, to count them; ``None`` if they are not one text for one result.
    reread: "Callable[[], Iterator[TextExample]] | None" = None
    # Of the file, taken before it was read: a file that changes meanwhile is an error.
    stamp: FileStamp | None = None


def run_options(name: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return all options of ``zoo run``, given or default ones; raises ``UsageError``."""
    declared_options: list[Any] = []
    for spec in find_tasks(name, "predict"):
        declared_options += spec.run_options
    options: dict[str, Any] = dict.fromkeys(("max_seq_len", "max_batch_tokens", "batch_size"))
    # If several heads declare an option, the default of the first one counts.
    for option in reversed(declared_options):
        options[option.name] = () if option.multiple else option.default
    options.pop("stream", None)
    for key, value in given.items():
        if key not in options:
            hint = did_you_mean(key, list(options)) or f"it has {', '.join(sorted(options))}"
            raise UsageError(f"{name} has no option {key!r}", hint)
        options[key] = value
    return options


def open_input(
    name: str,
    texts: Sequence[str] = (),
    source: str | None = None,
    *,
    file_format: InputFormat = "auto",
    text: str | None = None,
    pair: str | None = None,
    options: Mapping[str, Any],
    digests: bool = False,
) -> TaskInput:
    """Open the input of a task of ``zoo run``."""
    specs = find_tasks(name, "predict")
    task_classes: list[type[Task]] = [load_part(spec, "predict") for spec in specs]
    first_class = task_classes[0]
    arguments = dict(options)
    columns = first_class.columns(arguments, text, pair)
    # The head of the model decides later which of the classes runs.
    reserved = list(columns.reserved)
    for task_class in task_classes[1:]:
        reserved += task_class.output_keys
    columns = replace(columns, reserved=tuple(reserved))
    if "max_seq_len" in arguments:
        arguments["max_tokens"] = arguments.pop("max_seq_len")
    # Tasks of older plugins do not have this option.
    if arguments.get("batch_size") is None:
        arguments.pop("batch_size", None)

    def read() -> "Iterator[TextExample]":
        return read_records(
            texts, source, file_format=file_format, keys=first_class.keys, columns=columns
        )

    records = read()
    is_piped = "-" in (source, *texts[:1]) and len(texts) < 2
    path = None
    stamp = None
    if source is not None and not is_piped:
        path = fetch(source)
        # What is not a regular file, such as a named pipe, has no lasting size.
        if path.is_file():
            stamp = FileStamp.read(path)
    if not is_piped:
        records = require_first(records)
    first_records = records
    records, arguments = first_class.from_command(records, arguments)
    reread = read if records is first_records and not is_piped else None
    settings = None
    if digests and not is_piped:
        all_options = {**options, **arguments}
        set_options = {}
        for key in sorted(all_options):
            if all_options[key] is not None:
                set_options[key] = all_options[key]
        if path is None:
            digest = blake3(dump_json(list(texts)).encode()).hexdigest()
        else:
            digest = hash_file(path).blake3
        settings = {
            "task": specs[0].command,
            "input": digest,
            "format": file_format,
            "columns": [text, pair],
            "options": msgspec.to_builtins(set_options, enc_hook=str),
        }
    return TaskInput(records, arguments, path, settings, reread, stamp)


def require_output(
    name: str,
    path: Path,
    *,
    force: bool,
    resume: bool,
    source: str | None = None,
    excel_safe: bool = False,
) -> None:
    """Check that results of a task can be written to a file, before a model is loaded."""
    sources = [] if source in (None, "-") else [Path(str(source))]
    require_vector_format(name, path)
    check_output(path, force=force, resume=resume, sources=sources, excel_safe=excel_safe)
    if resume and source == "-":
        raise UsageError("standard input cannot be read again", "name a file with --input")


def require_vector_format(name: str, path: Path) -> None:
    """Check that the ending of an output is a format of vectors, or the task has none."""
    spec = find_tasks(name, "predict")[0]
    has_vectors = load_part(spec, "predict").vector_key is not None
    if has_vectors and path.suffix.lower() not in (*FORMATS, ARRAY):
        formats = ", ".join((*FORMATS, ARRAY))
        raise UsageError(f"{path}: the format is unknown", f"end the name in {formats}")
    if path.suffix.lower() == ARRAY and not has_vectors:
        raise UsageError(
            f"{path}: arrays hold vectors, which {spec.command} does not compute",
            "write .jsonl, .csv or .parquet",
        )


def require_format(name: str, path: Path, *, excel_safe: bool) -> None:
    """Check that a task can write the format of an output, which may exist."""
    require_vector_format(name, path)
    suffix = path.suffix.lower()
    if suffix not in (*FORMATS, ARRAY):
        raise UsageError(f"{path}: the format is unknown", f"end the name in {', '.join(FORMATS)}")
    require_cells(path, excel_safe=excel_safe)
    if suffix == PARQUET:
        require_pyarrow(path)


@contextlib.contextmanager
def task_progress(task: "Task", task_input: TaskInput, done: int = 0) -> Iterator[None]:
    """Show the progress of a task: texts, rate and time left.

    Args:
        task: the task that runs.
        task_input: its input.
        done: number of texts whose results an earlier command has written.
    """
    with task.show_progress(f"running {task.name}", done=done, items=task_input.reread):
        yield


def output_settings(task: "Task", given: TaskInput, *, excel_safe: bool) -> dict[str, Any] | None:
    """Return what the rows of an output depend on; ``None`` if the input cannot be read again."""
    if given.settings is None:
        return None
    session = task.session
    settings = {
        **given.settings,
        "model": blake3(task.checkpoint.identity).hexdigest(),
        "backend": [session.backend, session.device, session.dtype],
    }
    if excel_safe:
        settings["excel_safe"] = True
    return settings


def write_results(
    task: "Task",
    given: TaskInput,
    path: Path,
    *,
    resume: bool = False,
    force: bool = False,
    excel_safe: bool = False,
) -> int:
    """Run a task, and write its results to a file; return their number.

    A result is a row, with the columns of its record, except in arrays. In CSV and Parquet every
    row has the column ``truncated``.
    """
    suffix = path.suffix.lower()
    is_table = suffix not in (ARRAY, *TEXT_FORMATS)
    settings = output_settings(task, given, excel_safe=excel_safe)
    sources = [] if given.path is None else [given.path]
    no_vectors = None if task.vector_key is None else task.no_vectors()
    has_arrays = suffix == ARRAY or (suffix == PARQUET and task.has_vector_columns)
    with contextlib.ExitStack() as stack:
        output = stack.enter_context(
            resumable_output(
                path,
                settings,
                resume=resume,
                force=force,
                sources=sources,
                vector_key=task.vector_key,
                no_vectors=no_vectors,
                excel_safe=excel_safe,
                has_arrays=has_arrays,
                vector_record=task.vector_record,
            )
        )
        stack.enter_context(task_progress(task, given, done=output.rows))
        records = itertools.islice(task.split_records(given.records), output.rows, None)
        chunks = task.run_chunks(records, arrays=has_arrays, start=output.rows)
        for chunk in chunks:
            for result in chunk:
                row = result
                if is_table and has_arrays:
                    row = _with_plain_values(task, row)
                if is_table:
                    row = {**row, "truncated": result.get("truncated", 0)}
                output.write(row)
            output.mark()
        if given.stamp is not None and given.path is not None:
            given.stamp.require_same(given.path)
        return output.rows


def _with_plain_values(task: "Task", row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row of arrays in which only the vector is an array."""
    values: dict[str, Any] = {}
    for name in task.output_keys:
        if name in row and name != task.vector_key:
            values[name] = row[name]
    return {**row, **task.to_json(values)}
