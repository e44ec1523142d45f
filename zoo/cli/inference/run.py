"""The command ``zoo run``, with one subcommand per task."""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import click

from zoo.cli import output
from zoo.cli.options import (
    PATH,
    FiniteRange,
    IntegerRange,
    backend_options,
    common_options,
    count_option,
    hub_options,
    reference_argument,
)
from zoo.inference.tasks import TASKS, all_tasks, task_type

if TYPE_CHECKING:
    from zoo.inference.processing.records import TextExample

EPILOG = """\b
Examples:
  zoo run {name} REF "a text" "another text"
  zoo run {name} REF --input texts.txt > results.jsonl
  cat texts.jsonl | zoo run {name} REF -

Plain text has one text per line. JSON lines have the key "text", optionally "text_pair", and any
other keys, which are copied to the output. CSV, TSV and Parquet are read by column: --text and
--pair name those of the texts, by default text, sentence or the only one. Results are JSON lines in
input order. Texts longer
than the model allows are truncated; "truncated" is the number of tokens that were cut."""
# of tasks with other input
EPILOGS = {
    "similarity": """\b
Examples:
  zoo run similarity REF "a text" "another text" "a second pair" "its other text"
  zoo run similarity REF --input pairs.jsonl > results.jsonl

JSON lines have the keys "text" and "text_pair", and any other keys, which are copied to the output.
Texts longer than the model allows are truncated; "truncated" is the number of tokens that were
cut.""",
    "answer": """\b
Examples:
  zoo run answer REF "a question?" "a context" "another question?" "its context"
  zoo run answer REF --input questions.jsonl > answers.jsonl

JSON lines have the keys "question" and "context", and any other keys, which are copied to the
output. Long contexts are split into windows of --max-tokens tokens, by default 384. "start" and
"end" of an answer are characters of the context; an empty answer means that it has none.""",
    "choose": """\b
Examples:
  zoo run choose REF "a context" --choice "a text" --choice "another"
  zoo run choose REF "a context" --question "Who is _?" --choice "a text" --choice "another"
  zoo run choose REF --input questions.jsonl > choices.jsonl

JSON lines have the keys "context" and "choices", a list, optionally "question", and any other keys,
which are copied to the output. A choice replaces "_" in the question, or follows it. "label" is the
index of the best choice, "scores" are the probabilities of all.""",
    "score": """\b
Examples:
  zoo run score REF "a text" "another text"
  zoo run score REF --context "The river" " runs." " sings."
  zoo run score REF --input continuations.jsonl > scores.jsonl

JSON lines have the key "text", or the keys "context" and "continuation"; other keys are copied to
the output. Log-probabilities are in nats. Contexts longer than the model allows lose their
beginning; "truncated" is the number of tokens that were cut.""",
}


def generation_options(command: Any) -> Any:
    """Add the options of tasks that generate text; all default to the model's own settings."""
    number, real = IntegerRange, FiniteRange
    options = [
        click.option(
            "--max-new-tokens",
            type=number(1),
            help="Maximum number of new tokens.  [default: the model's, or 20]",
        ),
        click.option("--min-new-tokens", type=number(0), help="Minimum number of new tokens."),
        click.option("--num-beams", type=number(1), help="Number of beams."),
        click.option(
            "--length-penalty",
            type=FiniteRange(),
            help="Exponent of the length that beam scores are divided by.",
        ),
        click.option(
            "--num-return-sequences", type=number(1), help="Number of sequences for each text."
        ),
        click.option(
            "--repetition-penalty",
            type=real(0, min_open=True),
            help="Over 1, against tokens that occurred.",
        ),
        click.option(
            "--no-repeat-ngram-size", type=number(0), help="Length of n-grams that occur only once."
        ),
        click.option("--do-sample/--no-do-sample", default=None, help="Sample, or do not."),
        click.option("--temperature", type=real(0, min_open=True), help="Sampling temperature."),
        click.option("--top-k", type=number(1), help="Sample from the K most likely tokens."),
        click.option(
            "--top-p",
            type=real(0, 1, min_open=True),
            help="Sample from the smallest set of tokens with this total probability.",
        ),
        click.option("--seed", type=number(0), help="Random seed of the sampling."),
        click.option(
            "--generation-config",
            type=PATH,
            metavar="FILE",
            help="Further settings: keys of a generation_config.json.",
        ),
        click.option("--stream", is_flag=True, help="Write each piece of text as it is generated."),
    ]
    for option in reversed(options):
        command = option(command)
    return command


def classify_options(command: Any) -> Any:
    """Add the options of classification."""
    aggregate = click.option(
        "--aggregate",
        type=click.Choice(["none", "simple", "first", "average", "max"]),
        default="none",
        show_default=True,
        help="Join tokens to labelled spans; all but simple by words.",
    )
    stride = click.option(
        "--doc-stride",
        type=IntegerRange(0),
        metavar="N",
        help="Read long texts in windows that share N tokens.  [default: truncate them]",
    )
    return aggregate(stride(command))


def answer_options(command: Any) -> Any:
    """Add the options of question answering."""
    number = IntegerRange
    options = [
        click.option(
            "--top-k", type=number(1), default=1, show_default=True, help="Number of predictions."
        ),
        click.option(
            "--doc-stride",
            type=number(0),
            metavar="N",
            help="Tokens that windows over a long context share.  [default: 128]",
        ),
        click.option(
            "--max-answer-len",
            type=number(1),
            default=15,
            show_default=True,
            help="Maximum number of tokens of an answer.",
        ),
        click.option(
            "--handle-impossible-answer",
            is_flag=True,
            help="Return an empty answer where that is more likely.",
        ),
        click.option(
            "--null-threshold",
            type=FiniteRange(),
            default=0.0,
            show_default=True,
            metavar="X",
            help="With it: by how much more, in log-probability.",
        ),
    ]
    for option in reversed(options):
        command = option(command)
    return command


def choice_options(command: Any) -> Any:
    """Add the options of multiple choice."""
    question = click.option("--question", metavar="TEXT", help="Question on all contexts.")
    columns = click.option(
        "--choices",
        "choice_columns",
        multiple=True,
        metavar="COL",
        help="Column of the choices, or of each of them.",
    )
    choices = click.option(
        "--choice", "choices", multiple=True, metavar="TEXT", help="One of the choices; repeat it."
    )
    return choices(columns(question(command)))


def prompt_options(command: Any) -> Any:
    """Add the options of sentence embeddings."""
    name = click.option(
        "--prompt",
        "prompt_name",
        metavar="NAME",
        help="Prompt of the model, such as query.  [default: its default prompt, if any]",
    )
    text = click.option(
        "--prompt-text",
        "prompt",
        metavar="TEXT",
        help='Put this text before each text, in place of a prompt of the model; "" for none.',
    )
    return name(text(command))


# options of single tasks
TASK_OPTIONS: dict[str, Callable[[Any], Any]] = {
    "embed": prompt_options,
    "similarity": prompt_options,
    "fill-mask": count_option("--top-k", "Number of predictions per mask.", default=5),
    "features": click.option(
        "--layers",
        default="-1",
        show_default=True,
        metavar="N,...",
        help="Hidden states to return: 0 for the embeddings, -1 for the last layer.",
    ),
    "generate": generation_options,
    "seq2seq": generation_options,
    "classify": classify_options,
    "answer": answer_options,
    "choose": choice_options,
    "score": click.option(
        "--context", metavar="TEXT", help="Score the texts as continuations of this one."
    ),
}


class Tasks(click.Group):
    """Click group of the tasks; a subcommand is built when it is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """See ``click.Group``."""
        return list(all_tasks())

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """See ``click.Group``."""
        return task_command(cmd_name) if cmd_name in all_tasks() else None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the task with a name; the error for an unknown name suggests similar ones."""
        from zoo.errors import UsageError
        from zoo.plugins.named import find_object

        known = args[0] in TASKS or args[0].startswith("-") or ctx.resilient_parsing
        if not known:
            try:
                find_object("tasks", args[0], TASKS)
            except UsageError as error:
                raise click.UsageError(str(error), ctx) from error
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the table of tasks without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl(list(all_tasks().items()))


def task_command(name: str) -> click.Command:
    """Return the subcommand of a task; that of a plugin is imported, for its options."""

    def run(ref: str, texts: tuple[str, ...], as_json: bool, **options: Any) -> None:
        if options.pop("stream", False):
            _stream(name, ref, texts, as_json, options)
            return
        results = _counted(_results(name, ref, texts, options))
        if as_json:
            output.json_line({"task": name, "results": list(results)})
            return
        for result in results:
            output.json_line(result)

    run.__doc__ = TASKS[name][1] if name in TASKS else task_type(name).__doc__
    decorators = [
        click.command(name, epilog=EPILOGS.get(name, EPILOG.format(name=name))),
        reference_argument,
        click.argument("texts", nargs=-1, metavar="[TEXT... | -]"),
        click.option(
            "--input", "source", type=PATH, metavar="FILE", help="Read texts from a file."
        ),
        click.option(
            "--format",
            "kind",
            type=click.Choice(["auto", "text", "jsonl", "csv", "tsv", "parquet"]),
            default="auto",
            show_default=True,
            help="Format of the input; auto goes by the ending, and the first line.",
        ),
        click.option("--text", metavar="COL", help="Column, or key, of the text."),
        click.option("--pair", metavar="COL", help="Column, or key, of the second text."),
        *([TASK_OPTIONS[name]] if name in TASK_OPTIONS else []),
        count_option("--max-tokens", "Truncate texts to this number of tokens."),
        count_option("--max-batch-tokens", "Maximum number of tokens per batch, with padding."),
        backend_options,
        hub_options,
        common_options,
    ]
    command: Any = run
    for decorate in reversed(decorators):
        command = decorate(command)
    assert isinstance(command, click.Command), "the last decorator makes a command"
    command.params += [] if name in TASKS else task_type(name).options
    return command


def _counted(results: Iterator[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Show a progress bar, unless the results go to the terminal."""
    from zoo.io.progress import progress

    if output.is_terminal():
        yield from results
        return
    with progress("texts", None) as advance:
        for result in results:
            yield result
            advance(1)


def _stream(
    name: str, ref: str, texts: tuple[str, ...], as_json: bool, options: dict[str, Any]
) -> None:
    """Write the generated text of each input token by token, followed by a line end."""
    from zoo.errors import UsageError

    if as_json:
        raise UsageError("--stream and --json exclude each other", "leave one out")
    task, records = _prepared(name, ref, texts, options)
    for row_id, record in enumerate(records):
        for piece in task.stream_text(record, row_id):
            output.piece(piece)
        output.line("")


def _results(
    name: str, ref: str, texts: tuple[str, ...], options: dict[str, Any]
) -> Iterator[dict[str, Any]]:
    task, records = _prepared(name, ref, texts, options)
    results: Iterator[dict[str, Any]] = task.run(records)
    return results


def _prepared(
    name: str, ref: str, texts: tuple[str, ...], options: dict[str, Any]
) -> "tuple[Any, Iterator[TextExample]]":
    """Return the task and its input records."""
    from zoo.convert.on_first_use import resolve_checkpoint
    from zoo.export.fastest import open_fastest
    from zoo.export.session import open_or_export
    from zoo.inference.processing.inputs import read_records
    from zoo.inference.processing.table_records import InputColumns
    from zoo.inference.tasks import make_task
    from zoo.inference.tasks.checks import require_head

    task = task_type(name)
    source, kind = options.pop("source"), options.pop("kind")
    choice_columns = options.pop("choice_columns", ())
    columns = InputColumns(
        text=options.pop("text"),
        pair=options.pop("pair"),
        choices=choice_columns,
        reserved=(*task.output_keys, "truncated"),
    )
    records = read_records(
        texts,
        source,
        kind=kind,
        keys=task.keys,
        columns=columns,
        with_choices="choices" in options,
    )
    if (context := options.pop("context", None)) is not None:
        records = _continuations(records, context)
    if "choices" in options:
        from zoo.inference.tasks.choose import with_choices

        records = with_choices(records, options.pop("choices"), options.pop("question"))
    hub = {key: options.pop(key) for key in ("revision", "offline", "lock")}
    compute = {key: options.pop(key) for key in ("backend", "device", "dtype", "threads")}
    if (file := options.pop("generation_config", None)) is not None:
        options = _settings_of(file) | {k: v for k, v in options.items() if v is not None}
    if "layers" in options:
        options["layers"] = _numbers(options["layers"])
    checkpoint = resolve_checkpoint(ref, **hub)
    require_head(checkpoint, name, task.heads)  # before the slow loading of weights
    open_model = open_or_export if task.reads_layers else open_fastest
    return make_task(name, checkpoint, open_model(checkpoint, **compute), **options), records


def _settings_of(file: str) -> dict[str, Any]:
    """Return the settings of generation in a file."""
    from pathlib import Path

    from zoo.checkpoint.generation_config import call_settings
    from zoo.io.json import read_json_object

    return call_settings(read_json_object(Path(file)), Path(file))


def _continuations(records: "Iterator[TextExample]", context: str) -> "Iterator[TextExample]":
    """Yield the records as continuations of a context."""
    from dataclasses import replace

    from zoo.errors import UsageError
    from zoo.inference.processing.records import validate_text

    validate_text(context, "--context")
    for record in records:
        if record.pair is not None:
            raise UsageError(f"{record.location} has a context of its own", "leave out --context")
        yield replace(record, text=context, pair=record.text)


def _numbers(text: str) -> tuple[int, ...]:
    from zoo.errors import UsageError
    from zoo.io.numbers import parse_int

    numbers = [parse_int(part) for part in text.split(",")]
    if None in numbers:
        raise UsageError(f"--layers {text} is not a list of numbers", "such as 0,6,-1")
    return tuple(number for number in numbers if number is not None)


command = Tasks(
    "run",
    help="Run a task on texts and write JSON lines.",
    epilog="""\b
Examples:
  zoo run embed all-minilm-l6-v2 "a text" "another text"
  zoo run TASK --help    options of a task""",
)
