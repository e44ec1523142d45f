"""The command ``zoo eval``."""

import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from zoo.cli.completion import SUITE
from zoo.cli.file_lists import DependentArgument
from zoo.cli.many_files import shard_option
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
from zoo.cli.output import note, result, table
from zoo.cli.parameter_types import InputFile, LocalPath, OutputFile, OutputPath
from zoo.cli.suites import require_all_tasks, suite_table
from zoo.cli.task_options import (
    TaskCommand,
    table_of_suites,
    table_of_tasks,
    task_options,
    tasks_option,
)
from zoo.errors import UsageError

if TYPE_CHECKING:
    from zoo.evaluation.base import Result
    from zoo.suites.base import SuiteResult

MAX_ROWS = 20  # Labels or prompts that are printed.
LINE_WIDTH = 80
MAX_LEVEL_WIDTH = 10  # Characters of a level of a factor in a table; longer ones are numbered.
# What a row of conditions has in addition to the levels of factors.
CONDITION_VALUES = (
    "accuracy",
    "low",
    "high",
    "lowest",
    "highest",
    "deviation",
    "difference",
    "difference_low",
    "difference_high",
)


@click.command(
    cls=TaskCommand,
    part="evaluate",
    epilog=f"""\b
Tasks:
{table_of_tasks("evaluate")}

\b
Suites:
{table_of_suites()}

\b
Examples:
  zoo eval REF --task perplexity --eval book.txt
  zoo eval REF --task minimal-pairs --eval pairs.tsv
  zoo eval RUN/model --task replaced-tokens --eval book.txt --json
  zoo eval RUN/model --task text-classification --eval test.tsv --text s
  zoo eval runs/glue --suite glue GLUE
  zoo eval RUN/model --task question-answering --eval dev-v2.0.json
  zoo eval RUN/model --task text-classification --eval test.tsv \\
      --predictions predicted.csv
  zoo eval RUN/model --task text-classification --eval languages/ -o metrics/

A table of minimal pairs has the columns paradigm, good and bad. Labelled texts are a table, whose
columns are named, or counted from 1 in a file without a header.""",
)
@reference_argument
@click.argument(
    "data_folder",
    cls=DependentArgument,
    flag="--suite",
    metavar="[DIR]",
    type=InputFile(),
    required=False,
)
@shared_option("task", "Name of the evaluation; see below. With --help, shows its options.")
@click.option(
    "--suite",
    type=SUITE,
    metavar="NAME",
    help="Evaluate on all tasks of a benchmark, whose files are in DIR; see below. Of one that "
    "models are fine-tuned for, REF is a directory of models or runs with the names of the tasks, "
    "or a text-to-text model.",
)
@tasks_option
@shared_option(
    "eval_data",
    "Text, or a table, or - for standard input; of seq2seq also NAME=FILE or glue/NAME=DIR; may be "
    "repeated.",
    multiple=True,
    type=InputFile(),
)
@adapter_option
@global_tokens_option
@count_option("--limit", "Number of examples.  [default: all]")
@task_options("evaluate")
@click.option(
    "--predictions",
    type=OutputPath(),
    metavar="FILE",
    help="Write each sample with its label and prediction: .jsonl, .csv, .tsv or .parquet. With "
    "--suite, a folder for the answers to the test files, as its leaderboard takes them.",
)
@click.option(
    "--report",
    type=OutputFile(),
    metavar="FILE",
    help="Write a page with charts and the worst predictions: .html.",
)
@click.option("--force", is_flag=True, help="Replace the files of --predictions and --report.")
@shared_option("excel_safe")
@shared_option(
    "output",
    "Evaluate each file by itself, and write its metrics to a folder, as JSON.  [default: all "
    "files are one data set]",
    type=LocalPath("output"),
    metavar="FOLDER",
)
@shard_option
@click.option("--resume", is_flag=True, help="Leave files of --output that are complete.")
@click.option(
    "--no-record",
    is_flag=True,
    help="Do not write the result into the manifest of REF, if that is a directory.",
)
@backend_options
@hub_options
@common_options
def command(
    ref: str,
    data_folder: str | None,
    task: str | None,
    suite: str | None,
    tasks: tuple[str, ...],
    eval_data: tuple[str, ...],
    as_json: bool,
    no_record: bool,
    predictions: Path | None,
    report: Path | None,
    force: bool,
    excel_safe: bool,
    output: Path | None,
    shard: str | None,
    resume: bool,
    **options: Any,
) -> None:
    """Evaluate a model, and print its metrics, the metric that compares models first.

    The result is written into the manifest of the model's directory, and is in the model card. A
    name of the store, the registry or the Hub keeps its manifest.
    """
    from zoo.api.evaluating_suites import SuiteCall
    from zoo.api.evaluation import EvaluationCall, evaluate_files, require_output_folder
    from zoo.api.evaluation_arguments import EvaluationArguments
    from zoo.api.task_models import SOURCE_OPTIONS

    if data_folder is not None:
        if suite is None:
            raise UsageError(f"{data_folder} is a folder of --suite", "name other data by --eval")
        eval_data = (*eval_data, data_folder)

    source = {name: options.pop(name) for name in SOURCE_OPTIONS}
    compute = {name: options.pop(name) for name in ("backend", "device", "dtype", "threads")}
    arguments = EvaluationArguments(
        model=ref,
        eval=eval_data,
        task=task,
        suite=suite,
        tasks=tasks,
        predictions=predictions,
        report=report,
        force=force,
        excel_safe=excel_safe,
        record=not no_record,
        compute=compute,
        source=source,
        options=options,
    )
    if output is not None:
        measured = evaluate_files(arguments, output, shard=shard, resume=resume, force=force)
        result(dict(measured.details), _file_lines(measured, output), as_json=as_json)
        return
    require_output_folder(shard=shard, resume=resume)
    if suite is not None:
        suite_call = SuiteCall(arguments, suite)
        suite_result = suite_call.measure()
        values = suite_call.to_dict(suite_result.to_result())
        result(values, _suite_lines(suite_result), as_json=as_json)
        if predictions is not None:
            note(f"predictions: {predictions}")
        require_all_tasks(
            suite_result.failures,
            suite_result.missing_files,
            hint="correct what these lines name, or select other tasks with --tasks",
            as_json=as_json,
        )
        return
    evaluation = EvaluationCall(arguments)
    measured = evaluation.measure()
    lines = _lines(measured)
    # The result comes first: the disk of the files may be full.
    from zoo.io.urls import public_words

    result(evaluation.to_dict(measured), lines, as_json=as_json)
    evaluation.write(measured, command=["zoo", *public_words(sys.argv[1:])])
    if predictions is not None:
        note(f"predictions: {predictions}")
    if report is not None:
        note(f"report: {report}")


def _lines(measured: "Result") -> Iterator[str]:
    """Yield the metrics with their intervals, and a table for each of the details."""
    from zoo.report.confusion import confusion_lines

    details = dict(measured.details)
    intervals = details.pop("intervals", {})
    columns = ["metric", "value"]
    if intervals:
        columns.append("95 % interval")
    rows = []
    for name, number in measured.metrics.items():
        row = [name, _format(number)]
        if intervals:
            row.append(" to ".join(map(_format, intervals.get(name, ()))))
        rows.append(row)
    yield from table(rows, columns)
    for name, values in details.items():
        if name == "confusion":
            yield ""
            yield from confusion_lines(values, LINE_WIDTH)
        elif name == "signatures":
            yield ""
            yield from table(list(values.items()), ("metric", "signature"))
        elif isinstance(values, Mapping):
            yield ""
            yield from _detail(name, values)
        elif name == "conditions":
            yield ""
            yield from _conditions(values)
        elif name == "prompts":
            yield ""
            yield from _prompts(values, legend="conditions" not in details)


def _file_lines(measured: "Result", folder: Path) -> Iterator[str]:
    """Yield a table of the metrics of each file, and how many files were evaluated."""
    results: Mapping[str, Mapping[str, float]] = measured.details["results"]
    columns: dict[str, None] = {}  # A set that keeps its order.
    for metrics in results.values():
        columns.update(dict.fromkeys(metrics))
    rows = []
    for name, metrics in results.items():
        cells = [_format(metrics[column]) if column in metrics else "" for column in columns]
        rows.append([name, *cells])
    if rows:
        yield from table(rows, ["file", *columns])
        yield ""
    counts = measured.details["files"]
    line = f"evaluated {counts['written']:,} of {counts['total']:,} files: {folder}"
    if counts["remaining"]:
        line += f"; {counts['remaining']:,} remain"
    yield line


def _detail(name: str, values: Mapping[str, Any]) -> list[str]:
    """Return a table of values, or of rows of values; of many labels those with the lowest f1."""
    from zoo.report.confusion import shorten_name

    if not all(isinstance(row, Mapping) for row in values.values()):
        return table([(key, _format(value)) for key, value in values.items()], (name, "value"))
    if len(values) > MAX_ROWS:
        note(f"{MAX_ROWS} of {len(values):,} {name} with the lowest f1 are shown; --json has all")
        worst_labels = sorted(values, key=lambda label: values[label]["f1"])[:MAX_ROWS]
        values = {label: values[label] for label in worst_labels}
    columns = list(next(iter(values.values())))
    rows = []
    for label, numbers in values.items():
        row = [shorten_name(label, 30)]
        for column in columns:
            row.append(_format(numbers[column]))
        rows.append(row)
    return table(rows, (name, *columns))


def _conditions(conditions: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield the mean accuracy of conditions in their order, with their ranges and differences."""
    texts = _level_texts(conditions)
    yield from _numbered_texts(texts)
    names = [name for name in conditions[0] if name not in CONDITION_VALUES]
    rows = []
    for condition in conditions:
        difference = f"{_format(condition['difference_low'])} to "
        difference += _format(condition["difference_high"])
        row = _level_cells(condition, names, texts)
        row += [
            _format(condition["accuracy"]),
            f"{_format(condition['low'])} to {_format(condition['high'])}",
            f"{_format(condition['lowest'])} to {_format(condition['highest'])}",
            difference,
        ]
        rows.append(row)
    yield from table(rows, (*names, "mean", "95 % interval", "range", "minus the first"))


def _prompts(prompts: Sequence[Mapping[str, Any]], *, legend: bool) -> Iterator[str]:
    """Yield the accuracies of prompts, the best first; a legend has the texts of their numbers."""
    texts = _level_texts(prompts)
    if legend:
        yield from _numbered_texts(texts)
    ranking = sorted(prompts, key=lambda prompt: -prompt["accuracy"])
    if len(ranking) > MAX_ROWS:
        half = MAX_ROWS // 2
        note(f"the {half} best and worst of {len(ranking):,} prompts are shown; --json has all")
        ranking = [*ranking[:half], *ranking[-half:]]
    columns = [name for name in ranking[0] if name not in ("low", "high")]
    rows = []
    for prompt in ranking:
        row = _level_cells(prompt, columns, texts)
        row.append(f"{_format(prompt['low'])} to {_format(prompt['high'])}")
        rows.append(row)
    yield from table(rows, (*columns, "95 % interval"))


def _level_texts(rows: Sequence[Mapping[str, Any]]) -> dict[str, list[str]]:
    """Return the levels of factors that are too long for a table, which numbers them."""
    texts = {}
    for name, value in rows[0].items():
        if isinstance(value, str):
            levels = list(dict.fromkeys(row[name] for row in rows))
            if max(map(len, levels)) > MAX_LEVEL_WIDTH:
                texts[name] = levels
    return texts


def _numbered_texts(texts: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """Yield the texts that the numbers of tables name."""
    for name, levels in texts.items():
        for number, level in enumerate(levels, 1):
            yield f"{name} {number}  {level}"
        yield ""


def _level_cells(
    row: Mapping[str, Any], columns: Sequence[str], texts: Mapping[str, Sequence[str]]
) -> list[str]:
    """Return the cells of columns, with numbers in place of long texts."""
    cells = []
    for name in columns:
        value = row[name]
        if name in texts:
            cells.append(str(texts[name].index(value) + 1))
        elif isinstance(value, str):
            cells.append(value)
        else:
            cells.append(_format(value))
    return cells


def _suite_lines(measured: "SuiteResult") -> list[str]:
    """Return the table of a suite's tasks, and the average."""
    rows = []
    for name, score in measured.scores.items():
        values = " / ".join(f"{100 * value:.1f}" for value in score.metrics.values())
        rows.append((name, " / ".join(score.metrics), values, f"{score.score:.1f}"))
    average = f"{measured.average:.1f}"
    return suite_table(rows, average, len(measured.averaged), measured.missing)


def _format(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:.4f}"
