"""The command ``zoo run``, with one subcommand per task."""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from zoo.api.running import open_task
from zoo.api.running_files import has_output_folder, ray_options, run_files
from zoo.cli import output
from zoo.cli.many_files import files_options
from zoo.cli.options import (
    adapter_option,
    backend_options,
    common_options,
    count_option,
    global_tokens_option,
    hub_options,
    reference_argument,
    shared_option,
)
from zoo.cli.parameter_types import PATH, IntegerRange, LocalPath
from zoo.cli.task_options import add_options
from zoo.cli.texts import refuse_file_name, text_is_text_option
from zoo.data.many_files.shard import parse_shard
from zoo.plugins.tasks import built_in_tasks, commands, completed_names, find_tasks, load_part

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from zoo.data.many_files.folder import JobResult
    from zoo.families.tasks import TaskOption, TaskSpec
    from zoo.inference.task import Task
    from zoo.inference.task_warnings import CutTexts
    from zoo.tasks.table import TaskInput

EPILOG = """\b
Examples:
  zoo run {name} REF "a text" "another text"
  zoo run {name} REF --input texts.txt > results.jsonl
  zoo run {name} REF --input table.csv --text title -o results.csv
  zoo run {name} REF --input FOLDER -o RESULTS --shard 1/4
  cat texts.jsonl | zoo run {name} REF -

Plain text has one text per line. JSON lines have the key "text", optionally "text_pair", and any
other keys, which are copied to the output. CSV, TSV and Parquet are read by column: --text and
--pair name the columns, by default text, sentence or the only one. Results are JSON lines in
input order. Texts longer
than the model allows are truncated; "truncated" is the number of tokens that were cut."""


class Tasks(click.Group):
    """Click group of the tasks; a subcommand is built when it is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """See ``click.Group``."""
        return list(commands())

    def shell_complete(self, ctx: click.Context, incomplete: str) -> "list[CompletionItem]":
        """Complete names and synonyms of tasks in addition to verbs."""
        from click.shell_completion import CompletionItem

        items = list(super().shell_complete(ctx, incomplete))
        verbs = {item.value for item in items}
        for name in completed_names("predict"):
            if name not in verbs and name.startswith(incomplete):
                items.append(CompletionItem(name))
        return items

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return the command of a task by name, verb or synonym."""
        from zoo.errors import UsageError

        try:
            return task_command(cmd_name)
        except UsageError:
            return None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the task with a name; the error for an unknown name suggests similar ones."""
        from zoo.errors import UsageError

        if not args[0].startswith("-") and not ctx.resilient_parsing:
            try:
                find_tasks(args[0], "predict")
            except UsageError as error:
                raise click.UsageError(str(error), ctx) from error
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the table of tasks without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl(list(commands().items()))


def task_command(name: str) -> click.Command:
    """Return the subcommand of a task; a plugin's is imported, for its options."""
    specs = find_tasks(name, "predict")
    spec = specs[0]
    verb = spec.command

    def run(ref: str, texts: tuple[str, ...], **options: Any) -> None:
        if not options["text_is_text"]:
            _refuse_file_names(declared.values(), options)
        _run(spec, name, ref, texts, **options)

    run.__doc__ = spec.summary if len(specs) == 1 else spec.verb_summary
    declared: dict[str, TaskOption] = {}
    for task_spec in reversed(specs):
        for option in task_spec.run_options:
            declared[option.name] = option
    input_synonyms = [spec.input_flag] if spec.input_flag else []
    text_synonyms = [spec.text_flag] if spec.text_flag else []
    decorators = [
        click.command(verb, epilog=spec.examples or EPILOG.format(name=verb)),
        reference_argument,
        click.argument("texts", nargs=-1, metavar="[TEXT... | -]"),
        shared_option(
            "source",
            "Read texts from a file, or - for standard input; or from a folder, a pattern or "
            "several files, for --output FOLDER.",
            synonyms=input_synonyms,
            type=PATH,
            multiple=True,
        ),
        click.option(
            "--format",
            "file_format",
            type=click.Choice(["auto", "text", "jsonl", "csv", "tsv", "parquet"]),
            default="auto",
            show_default=True,
            help="Format of the input; auto looks at the extension and the first line.",
        ),
        text_is_text_option,
        shared_option("text", synonyms=text_synonyms),
        shared_option("pair"),
        shared_option(
            "output",
            "Write the results to a file: .jsonl, .csv, .tsv, .parquet, or vectors as .npy; of "
            "several inputs to a folder, in which each becomes a file.  "
            "[default: JSON lines on standard output]",
            type=LocalPath("output"),
            metavar="FILE|FOLDER",
        ),
        *files_options,
        click.option("--resume", is_flag=True, help="Continue an interrupted --output."),
        shared_option("force", "Replace the file of --output, or the files of a shard."),
        shared_option("excel_safe"),
        lambda function: add_options(function, list(declared.values())),
        shared_option(
            "max_seq_len",
            "Truncate texts to this number of tokens.",
            type=IntegerRange(1),
        ),
        count_option("--max-batch-tokens", "Maximum number of tokens per batch, with padding."),
        shared_option(
            "batch_size",
            "Maximum number of texts per batch.  [default: as many as are fastest]",
            type=IntegerRange(1),
        ),
        adapter_option,
        global_tokens_option,
        backend_options,
        hub_options,
        common_options,
    ]
    command: Any = run
    for decorate in reversed(decorators):
        command = decorate(command)
    assert isinstance(command, click.Command), "the last decorator makes a command"
    if spec.name not in built_in_tasks():  # A class of a plugin may have click's options.
        command.params += load_part(spec, "predict").options
    return command


def _refuse_file_names(declared: "Iterable[TaskOption]", values: Mapping[str, Any]) -> None:
    """Check that no option whose value is a text, such as --query, has the name of a file."""
    for option in declared:
        value = values[option.name]
        if option.metavar == "TEXT" and isinstance(value, str):
            refuse_file_name([value], '"$(cat FILE)"')


def _run(
    spec: "TaskSpec",
    name: str,
    ref: str,
    texts: tuple[str, ...],
    *,
    as_json: bool,
    text_is_text: bool,
    **options: Any,
) -> None:
    """Run a task on texts or files, and print or write its results."""
    from zoo.inference.task_warnings import collect_cut_texts

    if not text_is_text:
        refuse_file_name(texts, f"{spec.input_flag or '--input'} FILE")
    # The last line says how many texts were cut.
    with collect_cut_texts() as cut_texts:
        _run_inputs(spec, name, ref, texts, options, cut_texts, as_json=as_json)


def _run_inputs(
    spec: "TaskSpec",
    name: str,
    ref: str,
    texts: tuple[str, ...],
    options: dict[str, Any],
    cut_texts: "CutTexts",
    *,
    as_json: bool,
) -> None:
    """Run a task, and print or write its results; ``cut_texts`` counts the texts that are cut."""
    inputs: tuple[str, ...] = options.pop("source")
    _require_texts(spec, texts, inputs)
    target: Path | None = options.pop("output")
    output_options = {key: options.pop(key) for key in ("resume", "force", "excel_safe")}
    file_options = {key: options.pop(key) for key in ("shard", "suffix", "engine")}
    actor_options = {key: options.pop(key) for key in ("actors", "cpus_per_actor")}
    ray = ray_options(file_options["engine"], **actor_options)
    stream = options.pop("stream", False)
    if has_output_folder(texts, inputs, target, **file_options):
        assert target is not None, "has_output_folder checks it"
        if stream:
            raise click.UsageError("--stream writes to standard output; give one input")
        files_result = run_files(
            name,
            ref,
            inputs,
            target,
            options,
            shard=parse_shard(file_options["shard"]),
            suffix=file_options["suffix"],
            ray=ray,
            **output_options,
        )
        _print_files(spec, files_result, target, cut_texts.count, as_json=as_json)
        return
    options["source"] = inputs[0] if inputs else None
    if target is not None and str(target) != "-":
        if stream:
            raise click.UsageError("--stream writes to standard output; leave --output out")
        from zoo.tasks.table import require_output, write_results

        source = "-" if texts == ("-",) else options["source"]
        require_output(name, target, **output_options, source=source)
        task, arguments = open_task(name, ref, texts, options, digests=True)
        rows = write_results(task, arguments, target, **output_options)
        value = {
            "task": spec.command,
            "output": str(target),
            "rows": rows,
            "truncated": cut_texts.count,
        }
        output.result(value, [f"wrote {target}, {rows:,} rows"], as_json=as_json)
        return
    _refuse_output_options(output_options)
    if stream:
        _stream(name, ref, texts, as_json, options)
        return
    task, arguments = open_task(name, ref, texts, options)
    results = _with_progress(task, arguments, task.run(arguments.records))
    if as_json:
        output.json_line({"task": spec.command, "results": list(results)})
        return
    for result in results:
        output.result_line(result)


def _print_files(
    spec: "TaskSpec", result: "JobResult", folder: Path, truncated: int, *, as_json: bool
) -> None:
    """Print how many files were written."""
    value = {
        "task": spec.command,
        "output": str(folder),
        "rows": result.rows,
        "truncated": truncated,
        "files": result.to_dict(),
    }
    output.result(value, [f"wrote {result.summary}: {folder}"], as_json=as_json)


def _require_texts(spec: "TaskSpec", texts: tuple[str, ...], inputs: tuple[str, ...]) -> None:
    """Check that a task whose file of texts has an option of its own has any text."""
    from zoo.errors import UsageError

    if spec.input_flag and not texts and not inputs:
        hint = f"give a text, {spec.input_flag} FILE, or - for standard input"
        raise UsageError(f"{spec.command} has no text to work on", hint)


def _refuse_output_options(output_options: dict[str, Any]) -> None:
    """Check that no option of an output file is given, since there is no such file."""
    for key, value in output_options.items():
        if value:
            flag = key.replace("_", "-")
            raise click.UsageError(f"--{flag} is for --output FILE")


def _with_progress(
    task: "Task", task_input: "TaskInput", results: Iterator[dict[str, Any]]
) -> Iterator[dict[str, Any]]:
    """Show a progress bar, unless the results go to the terminal."""
    from zoo.tasks.table import task_progress

    if output.is_terminal():
        yield from results
        return
    with task_progress(task, task_input):
        yield from results


def _stream(
    name: str, ref: str, texts: tuple[str, ...], as_json: bool, options: dict[str, Any]
) -> None:
    """Write the generated text of each input token by token, followed by a line end."""
    from zoo.errors import UsageError

    if as_json:
        raise UsageError("--stream and --json exclude each other", "leave one out")
    task, task_input = open_task(name, ref, texts, options)
    text_task: Any = task
    for row_id, record in enumerate(task_input.records):
        for piece in text_task.stream_text(record, row_id):
            output.piece(piece)
        output.line("")


command = Tasks(
    "run",
    help="Run a task on texts and write JSON lines.",
    epilog="""\b
Examples:
  zoo run embed all-minilm-l6-v2 "a text" "another text"
  zoo run TASK --help    options of a task""",
)
