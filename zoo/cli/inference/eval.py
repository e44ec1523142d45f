"""The command ``zoo eval``."""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from zoo.cli.options import (
    adapter_option,
    backend_options,
    common_options,
    count_option,
    hub_options,
    reference_argument,
    shared_option,
)
from zoo.cli.output import note, result, table
from zoo.cli.parameter_types import InputFile, OutputFile
from zoo.cli.task_options import (
    TaskCommand,
    declared_options,
    table_of_tasks,
    task_options,
)
from zoo.plugins.tasks import evaluation_task, find_task

if TYPE_CHECKING:
    from zoo.evaluation.base import Evaluation, Result

LOG = logging.getLogger("zoo")
MAX_ROWS = 20  # Labels or prompts that are printed.
LINE_WIDTH = 80
# The files of --figures.
CONFUSION_FILE = "confusion.svg"
RELIABILITY_FILE = "reliability.svg"


@click.command(
    cls=TaskCommand,
    part="evaluate",
    epilog=f"""\b
Tasks:
{table_of_tasks("evaluate")}

\b
Examples:
  zoo eval REF --task perplexity --eval book.txt
  zoo eval REF --task minimal-pairs --eval pairs.tsv
  zoo eval RUN/model --task replaced-tokens --eval book.txt --json
  zoo eval RUN/model --task text-classification --eval test.tsv --text s
  zoo eval runs/glue --suite glue --eval GLUE
  zoo eval RUN/model --task question-answering --eval dev-v2.0.json
  zoo eval RUN/model --task text-classification --eval test.tsv \\
      --predictions predicted.csv

A table of minimal pairs has the columns paradigm, good and bad. Labelled texts are a table, whose
columns are named, or counted from 1 in a file without a header.""",
)
@reference_argument
@shared_option("task", "Name of the evaluation; see below. With --help, shows its options.")
@click.option(
    "--suite",
    type=click.Choice(["glue"]),
    help="Evaluate a model for each task; REF is a directory of models or runs with their names.",
)
@shared_option(
    "eval_data",
    "Text, or a table; of seq2seq also NAME=FILE or glue/NAME=DIR; may be repeated.",
    required=True,
    multiple=True,
    type=InputFile(),
)
@adapter_option
@count_option("--limit", "Number of examples.  [default: all]")
@task_options("evaluate")
@click.option(
    "--predictions",
    type=OutputFile(),
    metavar="FILE",
    help="Write each sample with its label and prediction: .jsonl, .csv, .tsv or .parquet.",
)
@click.option(
    "--report",
    type=OutputFile(),
    metavar="FILE",
    help="Write a page with charts and the worst predictions: .html.",
)
@click.option("--force", is_flag=True, help="Replace the files of --predictions and --report.")
@shared_option("excel_safe")
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
    task: str | None,
    suite: str | None,
    eval_data: tuple[str, ...],
    revision: str | None,
    offline: bool,
    lock: Path | None,
    as_json: bool,
    no_record: bool,
    adapter: tuple[str, ...],
    predictions: Path | None,
    report: Path | None,
    force: bool,
    excel_safe: bool,
    **options: Any,
) -> None:
    """Evaluate a model, and print its metrics, the metric that compares models first.

    The result is written into the manifest of the model's directory, and is in the model card. A
    name of the store, the registry or the Hub keeps its manifest.
    """
    from dataclasses import replace

    from zoo.checkpoint.digests import check_manifest
    from zoo.conversion.cache import resolve_adapted
    from zoo.data.readers.documents import expand_paths
    from zoo.errors import UsageError
    from zoo.evaluation.record import evaluation_record, is_recordable, record_evaluation
    from zoo.exporting.session import open_session
    from zoo.io.progress import progress_of_files

    compute = {name: options.pop(name) for name in ("backend", "device", "dtype", "threads")}
    requested = {name: value for name, value in options.items() if value not in (None, ())}
    _check_options(task, suite, {**requested, "revision": revision, "lock": lock})
    record = not no_record
    data = tuple(map(Path, eval_data))
    if task is None:
        outputs = {"--predictions": predictions, "--report": report, "--excel-safe": excel_safe}
        for flag, setting in outputs.items():
            if setting:
                raise UsageError(f"{suite} has several tasks", f"leave {flag} out")
        _print_glue(Path(ref), data, compute, options["limit"], record=record, as_json=as_json)
        return
    figures = Path(requested.pop("figures")) if "figures" in requested else None
    spec = find_task(task, "evaluate")
    task = spec.name
    evaluation = evaluation_task(task)
    files, options_of_names = evaluation.split_names(data, requested)
    requested = {**options_of_names, **requested}
    if excel_safe and predictions is None:
        raise UsageError("--excel-safe is for --predictions FILE", "leave it out")
    output = _Output(predictions, report, files, force=force, excel_safe=excel_safe)
    checkpoint = resolve_adapted(ref, adapter, revision=revision, offline=offline, lock=lock)
    evaluation.require_supported(checkpoint)  # before loading the weights
    if record and not is_recordable(ref, checkpoint):
        LOG.info("the result is not recorded: %s is not the directory of a converted model", ref)
        record = False
    elif record:
        check_manifest(checkpoint.path)
    session = open_session(checkpoint, **compute, fastest=True, needs=evaluation.needs)
    task_evaluation = evaluation(checkpoint, session, **requested)
    reading = progress_of_files("evaluating", expand_paths(list(files)))
    with reading, output.collecting(task_evaluation) as on_prediction:
        measured = task_evaluation.evaluate(data, on_prediction=on_prediction)
    metrics = dict(measured.metrics)
    for name in spec.metrics:
        if name in metrics:  # The metric that models are compared by comes first.
            metrics = {name: metrics[name], **metrics}
            break
    measured = replace(measured, metrics=metrics)
    if record:
        entry = evaluation_record(task, files, requested, session, measured)
        record_evaluation(checkpoint.path, entry)
    settings = {
        "reference": ref,
        "task": task,
        "data": [str(path) for path in data],
        **requested,
    }
    value = {
        **settings,
        "metrics": dict(measured.metrics),
        **measured.details,
        "recorded": record,
    }
    # The result comes first: the disk of the files may be full.
    result(value, _lines(measured), as_json=as_json)
    if figures is not None:
        _draw(figures, measured)
    output.finish(settings, measured)


class _Output:
    """The files of predictions and of the report; either may be ``None``."""

    def __init__(
        self,
        predictions: Path | None,
        report: Path | None,
        files: Sequence[Path],
        *,
        force: bool,
        excel_safe: bool,
    ) -> None:
        from zoo.data.readers.documents import expand_paths
        from zoo.errors import UsageError
        from zoo.io.output.overwrite import check_file
        from zoo.io.output.tables import check_table

        self.predictions = predictions
        self.report = report
        if predictions is None and report is None:
            return
        self._options: dict[str, Any] = {"force": force, "sources": expand_paths(list(files))}
        self._excel_safe = excel_safe
        # Both are checked before anything is computed.
        if predictions is not None:
            check_table(predictions, **self._options, excel_safe=excel_safe)
        if report is not None:
            if report.suffix.lower() not in (".html", ".htm"):
                raise UsageError(f"{report}: a report is HTML", "end the name in .html")
            check_file(report, **self._options)

    @contextmanager
    def collecting(
        self, evaluation: "Evaluation"
    ) -> "Iterator[Callable[[Mapping[str, Any]], None] | None]":
        """Yield the function that gets predictions, or ``None``."""
        from zoo.evaluation.mistakes import MistakeCollector
        from zoo.io.output.tables import table_writer

        self._collector = MistakeCollector(evaluation.mistake, evaluation.class_labels)
        sinks: list[Callable[[Mapping[str, Any]], None]] = []
        if self.report is not None:
            sinks.append(self._collector.add)
        with ExitStack() as stack:
            if self.predictions is not None:
                writer = table_writer(
                    self.predictions, **self._options, excel_safe=self._excel_safe
                )
                sinks.append(stack.enter_context(writer))

            def on_prediction(row: Mapping[str, Any]) -> None:
                for sink in sinks:
                    sink(row)

            yield on_prediction if sinks else None

    def finish(self, settings: Mapping[str, Any], measured: "Result") -> None:
        """Write the report, and note where the files are."""
        from zoo.io.output.atomic import atomic_write
        from zoo.io.output.full_disks import writing
        from zoo.io.yaml import dump_yaml
        from zoo.report.evaluation import evaluation_page

        if self.predictions is not None:
            note(f"predictions: {self.predictions}")
        if self.report is None:
            return
        files = ", ".join(Path(path).name for path in settings["data"])
        lead = f"{settings['task']} on {files}"
        page = evaluation_page(
            settings["reference"],
            lead,
            measured.metrics,
            measured.details,
            self._collector.mistakes(),
            dump_yaml(dict(settings)),
        )
        with writing(self.report):
            atomic_write(self.report, page)
        note(f"report: {self.report}")


def _check_options(task: str | None, suite: str | None, requested: Mapping[str, Any]) -> None:
    """Check that a task or a suite is given, and the options that are requested belong to it."""
    from zoo.errors import UsageError

    if (task is None) == (suite is None):
        raise UsageError("give either --task or --suite", "see `zoo eval --help`")
    allowed_names = set[str]()
    if task is not None:
        allowed_names = {option.name for option in find_task(task, "evaluate").eval_options}
    for option in declared_options("evaluate"):
        if option.name in requested and option.name not in allowed_names:
            flag = option.flags
            raise UsageError(f"{task or suite} has no option {flag}", f"leave {flag} out")
    for name in ("revision", "lock"):
        if suite is not None and requested[name] is not None:
            raise UsageError(f"--suite {suite} evaluates directories", f"leave --{name} out")


def _draw(folder: Path, measured: "Result") -> None:
    from zoo.report.figures import plot_confusion, plot_reliability

    plot_confusion(folder / CONFUSION_FILE, measured.details["confusion"])
    plot_reliability(folder / RELIABILITY_FILE, measured.details["reliability"])


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
        elif isinstance(values, Mapping):
            yield ""
            yield from _detail(name, values)
        elif name == "prompts":
            yield ""
            yield from _prompts(values)


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


def _prompts(prompts: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield the accuracies of prompts, the best first, and the texts that their numbers name."""
    texts = {}
    for name, value in prompts[0].items():
        if isinstance(value, str):
            texts[name] = list(dict.fromkeys(prompt[name] for prompt in prompts))
    for name, levels in texts.items():
        for number, level in enumerate(levels, 1):
            yield f"{name} {number}  {level}"
        yield ""
    ranking = sorted(prompts, key=lambda prompt: -prompt["accuracy"])
    if len(ranking) > MAX_ROWS:
        half = MAX_ROWS // 2
        note(f"the {half} best and worst of {len(ranking):,} prompts are shown; --json has all")
        ranking = [*ranking[:half], *ranking[-half:]]
    columns = [name for name in ranking[0] if name not in ("low", "high")]
    rows = []
    for prompt in ranking:
        row = []
        for name in columns:
            if name in texts:
                row.append(str(texts[name].index(prompt[name]) + 1))
            else:
                row.append(_format(prompt[name]))
        row.append(f"{_format(prompt['low'])} to {_format(prompt['high'])}")
        rows.append(row)
    yield from table(rows, (*columns, "95 % interval"))


def _print_glue(
    models: Path,
    data: tuple[Path, ...],
    compute: Mapping[str, Any],
    limit: int | None,
    *,
    record: bool,
    as_json: bool,
) -> None:
    """Evaluate the models of GLUE's tasks, and print their scores and the average."""
    from zoo.conversion.cache import resolve_checkpoint
    from zoo.data.readers.glue import GLUE
    from zoo.errors import UsageError
    from zoo.exporting.session import open_session
    from zoo.tasks.glue import evaluate_glue, glue_models

    if len(data) != 1:
        raise UsageError("--suite glue reads one directory", "name the one of GLUE by --eval")

    def open_model(path: Path) -> tuple[Any, Any]:
        checkpoint = resolve_checkpoint(str(path))
        return checkpoint, open_session(checkpoint, **compute, fastest=True)

    scores = evaluate_glue(glue_models(models), data[0], open_model, limit=limit, record=record)
    average = sum(score.score for score in scores) / len(scores)
    tasks = {}
    rows = []
    for score in scores:
        tasks[score.task] = {**score.metrics, "score": score.score}
        rows.append((score.task, ", ".join(score.metrics), f"{score.score:.1f}"))
    rows.append((f"average of {len(scores)} of {len(GLUE)}", "", f"{average:.1f}"))
    value = {
        "suite": "glue",
        "tasks": tasks,
        "average": average,
        "missing": [name for name in GLUE if name not in tasks],
    }
    result(value, table(rows, ("task", "metrics", "score")), as_json=as_json)


def _format(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:.4f}"
