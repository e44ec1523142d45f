"""A task over a file of texts or a table, into another file: ``zoo run --input --output``."""

import contextlib
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from blake3 import blake3

from zoo.errors import UsageError, did_you_mean
from zoo.inference.processing.inputs import Kind, read_records
from zoo.io.digests.files import hash_file
from zoo.io.json import dump_json
from zoo.io.output.resumable import ARRAY, check_output, resumable_output
from zoo.io.progress import progress_of_chunks
from zoo.plugins.tasks import find_tasks, load_part

if TYPE_CHECKING:
    from zoo.inference.processing.records import TextExample
    from zoo.inference.task import Task

TEXT_FORMATS = (".jsonl", ".ndjson")  # in which a row has the keys of its result, and no others


@dataclass(frozen=True)
class TaskInput:
    """Input of a task, and the task's options."""

    records: "Iterator[TextExample]"  # the texts
    options: dict[str, Any]  # arguments of the task's class
    path: Path | None  # file that is read; ``None`` for texts and for standard input
    # what the results depend on, besides the model; ``None`` if the input cannot be read again
    settings: dict[str, Any] | None


def run_options(name: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return all options of ``zoo run``, given or default ones; raises ``UsageError``."""
    declared = [option for spec in find_tasks(name, "predict") for option in spec.run_options]
    options: dict[str, Any] = dict.fromkeys(("max_seq_len", "max_batch_tokens", "batch_size"))
    for option in reversed(declared):
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
    kind: Kind = "auto",
    text: str | None = None,
    pair: str | None = None,
    options: Mapping[str, Any],
    digests: bool = False,
) -> TaskInput:
    """Open the input of a task of ``zoo run``."""
    specs = find_tasks(name, "predict")
    kinds: list[type[Task]] = [load_part(spec, "predict") for spec in specs]
    first = kinds[0]
    own = dict(options)
    columns = first.columns(own, text, pair)
    reserved = (key for other in kinds[1:] for key in other.output_keys)  # the head decides later
    columns = replace(columns, reserved=(*columns.reserved, *reserved))
    if "max_seq_len" in own:
        own["max_tokens"] = own.pop("max_seq_len")
    if own.get("batch_size") is None:  # tasks of older plugins do not have it
        own.pop("batch_size", None)
    records = read_records(texts, source, kind=kind, keys=first.keys, columns=columns)
    records, own = first.from_command(records, own)
    is_piped = "-" in (source, *texts[:1]) and len(texts) < 2
    path = Path(source) if source is not None and not is_piped else None
    settings = None
    if digests and not is_piped:
        given = {key: value for key, value in {**options, **own}.items() if value is not None}
        if path is None:
            digest = blake3(dump_json(list(texts)).encode()).hexdigest()
        else:
            digest = hash_file(path).blake3
        settings = {
            "task": specs[0].command,
            "input": digest,
            "format": kind,
            "columns": [text, pair],
            "options": msgspec.to_builtins({k: given[k] for k in sorted(given)}, enc_hook=str),
        }
    return TaskInput(records, own, path, settings)


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
    check_output(path, force=force, resume=resume, sources=sources, excel_safe=excel_safe)
    specs = find_tasks(name, "predict")
    if path.suffix.lower() == ARRAY and load_part(specs[0], "predict").vector_key is None:
        raise UsageError(
            f"{path}: arrays hold vectors, which {specs[0].command} does not compute",
            "write .jsonl, .csv or .parquet",
        )
    if resume and source == "-":
        raise UsageError("standard input cannot be read again", "name a file with --input")


def write_results(
    task: "Task",
    given: TaskInput,
    path: Path,
    *,
    resume: bool = False,
    force: bool = False,
    excel_safe: bool = False,
) -> int:
    """Run a task, and write its results to a file; return their number."""
    # A result is a row, with the columns of its record, except in arrays. In CSV and Parquet every
    # row has the column ``truncated``.
    suffix = path.suffix.lower()
    is_table = suffix not in (ARRAY, *TEXT_FORMATS)
    settings = None
    if given.settings is not None:
        session = task.session
        settings = {
            **given.settings,
            "model": blake3(task.checkpoint.identity).hexdigest(),
            "backend": [session.backend, session.device, session.dtype],
        }
        if excel_safe:
            settings["excel_safe"] = True
    sources = [] if given.path is None else [given.path]
    with contextlib.ExitStack() as stack:
        output = stack.enter_context(
            resumable_output(
                path,
                settings,
                resume=resume,
                force=force,
                sources=sources,
                vector_key=task.vector_key,
                no_vectors=None if task.vector_key is None else task.no_vectors(),
                excel_safe=excel_safe,
            )
        )
        count = stack.enter_context(progress_of_chunks(task.name, sources))
        records = itertools.islice(given.records, output.rows, None)
        chunks = task.run_chunks(records, arrays=suffix == ARRAY, start=output.rows)
        for chunk in count(chunks):
            for result in chunk:
                output.write(
                    {**result, "truncated": result.get("truncated", 0)} if is_table else result
                )
            output.mark()
        return output.rows
