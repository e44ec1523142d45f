"""``zoo.evaluate``: the command ``zoo eval`` as a function."""

import inspect
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from zoo.api import Model
from zoo.api.arguments import AnyPath, AnyPaths, as_path, checked, require_backend
from zoo.api.evaluating_suites import SuiteCall
from zoo.api.evaluation_arguments import EvaluationArguments
from zoo.errors import UsageError, did_you_mean
from zoo.io.paths import as_paths, readable_name
from zoo.io.remote.cache import fetch
from zoo.plugins.tasks import evaluation_task, find_task, public_tasks

if TYPE_CHECKING:
    from zoo.checkpoint import Checkpoint
    from zoo.evaluation.base import Evaluation, Result
    from zoo.inference import Session

LOG = logging.getLogger("zoo")
OnPrediction = Callable[[Mapping[str, Any]], None]
# Options that are only for references.
LOADED = ("backend", "device", "dtype", "threads", "revision", "adapter", "global_tokens")
# The files of ``figures``.
CONFUSION_FILE = "confusion.svg"
RELIABILITY_FILE = "reliability.svg"


@checked
def evaluate(
    model: str | PathLike[str] | Model,
    *,
    eval: AnyPaths = (),
    task: str | None = None,
    suite: str | None = None,
    tasks: str | Sequence[str] = (),
    adapter: AnyPaths = (),
    global_tokens: str | None = None,
    limit: int | None = None,
    predictions: AnyPath | None = None,
    report: AnyPath | None = None,
    force: bool = False,
    excel_safe: bool = False,
    output: AnyPath | None = None,
    shard: str | None = None,
    resume: bool = False,
    record: bool = True,
    backend: str = "auto",
    device: str | None = None,
    dtype: str | None = None,
    threads: int | None = None,
    revision: str | None = None,
    offline: bool = False,
    lock: AnyPath | None = None,
    on_prediction: OnPrediction | None = None,
    **options: Any,
) -> "Result":
    """Evaluate a model; ``zoo eval`` does the same.

    Args:
        model: a model, or its reference as for ``zoo.load``.
        eval: files, directories or patterns of the data; of a suite, the directory of its files.
        task: name of the evaluation, such as ``text-classification``; ``zoo eval --help`` lists
            them.
        suite: a benchmark in place of a task, such as ``glue``; of one that models are fine-tuned
            for, ``model`` is a directory of models or runs with the names of its tasks, or a
            text-to-text model.
        tasks: names of the suite's tasks to evaluate; by default all.
        adapter: see ``zoo.load``.
        global_tokens: see ``zoo.load``.
        limit: number of examples; by default all.
        predictions: file for each sample with its label and prediction: ``.jsonl``, ``.csv``,
            ``.tsv`` or ``.parquet``.
        report: file for a page with charts and the worst predictions: ``.html``.
        force: replace these files.
        excel_safe: in CSV and TSV, precede by ``'`` what a spreadsheet would compute.
        output: folder for the metrics of each file as JSON; by default all files are one data set.
        shard: part of the files to evaluate, see ``zoo.run``.
        resume: leave the files of ``output`` that are complete as they are.
        record: write the result into the manifest of the model, if ``model`` is its directory.
        backend: see ``zoo.load``; ``auto`` is the fastest that ``zoo bench`` measured here.
        device: see ``zoo.load``.
        dtype: see ``zoo.load``.
        threads: see ``zoo.load``.
        revision: see ``zoo.load``.
        offline: see ``zoo.load``.
        lock: file that pins revisions and digests; by default ``zoo.lock``, if it exists.
        on_prediction: called with each sample and its prediction, in the order of the samples: the
            rows of ``predictions``.
        **options: options of ``zoo eval`` for the task, with underscores: ``text``, ``pair``,
            ``label``, ``seed``, ...

    Returns:
        ``metrics``, name -> number, and ``details``, such as intervals and scores of each label.
        Of a suite, the metric is the average, and the details have the tasks, and those that are
        missing. With ``output``,
        there are no metrics of all files, and the details have ``files`` and ``results``.

    Raises:
        UsageError: the task or an option is unknown, the model does not support it, or a file does
            not suit it; or a loaded model gets what loads a reference, such as ``backend``.
        SourceError: a model or file is missing.
        VerificationError: a file is damaged.
        NonFiniteError: an output is NaN or infinite.

    Example:
        >>> result = zoo.evaluate(  # doctest: +SKIP
        ...     "runs/sentiment/model", task="text-classification", eval="test.tsv", text="sentence"
        ... )
        >>> result.metrics["accuracy"], result.details["intervals"]["accuracy"]  # doctest: +SKIP
        (0.913, (0.894, 0.931))
    """
    require_backend(backend)
    arguments = EvaluationArguments(
        model=model,
        eval=as_paths(eval),
        task=task,
        suite=suite,
        tasks=tasks,
        predictions=predictions,
        report=report,
        force=force,
        excel_safe=excel_safe,
        record=record,
        compute={"backend": backend, "device": device, "dtype": dtype, "threads": threads},
        source={
            "adapter": as_paths(adapter),
            "global_tokens": global_tokens,
            "revision": revision,
            "offline": offline,
            "lock": as_path(lock, "file"),
        },
        options={"limit": limit, **options},
    )
    if output is not None:
        folder = Path(output)
        return evaluate_files(arguments, folder, shard=shard, resume=resume, force=force)
    require_output_folder(shard=shard, resume=resume)
    if suite is not None:
        return SuiteCall(arguments, suite).measure().to_result()
    evaluation = EvaluationCall(arguments)
    result = evaluation.measure(on_prediction)
    evaluation.write(result)
    return result


def evaluate_files(
    arguments: EvaluationArguments, folder: Path, *, shard: str | None, resume: bool, force: bool
) -> "Result":
    """Evaluate a model on each of many files, and write their metrics to a folder.

    Args:
        arguments: the arguments, whose data are the files.
        folder: the folder.
        shard: part of the files, see ``zoo.run``.
        resume: leave the files that are complete as they are.
        force: evaluate the files of the shard again.
    """
    from zoo.api.evaluating_files import FileEvaluation
    from zoo.data.many_files.shard import parse_shard

    evaluation = FileEvaluation(EvaluationCall, arguments)
    return evaluation.run(folder, shard=parse_shard(shard), resume=resume, force=force)


def require_output_folder(*, shard: str | None, resume: bool) -> None:
    """Check that options of an output folder are not given without one."""
    for flag, value in (("shard", shard), ("resume", resume)):
        if value:
            raise UsageError(f"--{flag} is for --output FOLDER", "leave it out")


class EvaluationCall:
    """A call of ``evaluate``: it measures, and then writes figures and the report.

    The command prints the result in between, since the disk of the files may be full.

    Args:
        arguments: the arguments, with a task and without a suite.
    """

    def __init__(self, arguments: EvaluationArguments) -> None:
        self._model = arguments.model
        self._compute = dict(arguments.compute)
        self._source = dict(arguments.source)
        self._record = arguments.record
        self.recorded = False
        self.reference = arguments.reference
        task = arguments.task
        self.data = [fetch(path) for path in as_paths(arguments.eval)]
        self.options = {}
        for name, value in arguments.options.items():
            if value not in (None, ()):
                self.options[name] = value
        self._require_suitable(task, arguments.tasks)
        predictions_path = as_path(arguments.predictions, "output")
        report_path = as_path(arguments.report, "output")
        assert task is not None, "a missing task is refused above"
        self._figures = self.options.pop("figures", None)
        self.spec = find_task(task, "evaluate")
        self.task = self.spec.name
        self._evaluation: type[Evaluation] = evaluation_task(self.task)
        _require_known(self._evaluation, self.options)
        self._files, options_of_names = self._evaluation.split_names(self.data, self.options)
        self.options = {**options_of_names, **self.options}
        excel_safe = arguments.excel_safe
        if excel_safe and predictions_path is None:
            raise UsageError("--excel-safe is for --predictions FILE", "leave it out")
        self._output = _Output(
            predictions_path,
            report_path,
            self._files,
            force=arguments.force,
            excel_safe=excel_safe,
        )

    def _require_suitable(self, task: str | None, tasks: str | Sequence[str]) -> None:
        """Check that a task and data are given, and the options belong to the task."""
        if task is None:
            from zoo.api.fitting_tasks import missing_task

            named_options = {name: self.options[name] for name in self.options if name != "limit"}
            files = [str(path) for path in self.data]
            raise missing_task("evaluate", self.reference, files, named_options)
        if tasks:
            raise UsageError("--tasks selects tasks of a suite", "leave it out, or give --suite")
        if not self.data:
            raise UsageError("there are no data to evaluate on", "name a file with --eval")
        allowed_names = {option.name for option in find_task(task, "evaluate").eval_options}
        for spec in public_tasks("evaluate"):
            for option in spec.eval_options:
                if option.name in self.options and option.name not in allowed_names:
                    flag = option.flags
                    raise UsageError(f"{task} has no option {flag}", f"leave {flag} out")

    @property
    def settings(self) -> dict[str, Any]:
        """What was evaluated, on which data, and how."""
        return {
            "reference": self.reference,
            "task": self.task,
            "data": [readable_name(path) for path in self.data],
            **self.options,
        }

    def to_dict(self, result: "Result") -> dict[str, Any]:
        """Return what ``zoo eval --json`` prints."""
        return {
            **self.settings,
            "metrics": dict(result.metrics),
            **result.details,
            "recorded": self.recorded,
        }

    def measure(self, on_prediction: OnPrediction | None = None) -> "Result":
        """Evaluate the model, and record the result."""
        from zoo.evaluation.record import evaluation_record, record_evaluation

        checkpoint, session = self.open_model()
        evaluation = self._evaluation(checkpoint, session, **self.options)
        with self._output.collecting(evaluation, on_prediction) as collect:
            result = evaluation.evaluate(self.data, on_prediction=collect)
        metrics = dict(result.metrics)
        for name in self.spec.metrics:
            if name in metrics:  # The metric that models are compared by comes first.
                metrics = {name: metrics[name], **metrics}
                break
        result = replace(result, metrics=metrics)
        if self.recorded:
            settings = dict(self.options)
            if checkpoint.global_tokens is not None:
                settings["global_tokens"] = checkpoint.global_tokens
            entry = evaluation_record(self.task, self._files, settings, session, result)
            record_evaluation(checkpoint.path, entry)
        return result

    def open_model(self) -> "tuple[Checkpoint, Session]":
        """Return the checkpoint and the session, and decide whether the result is recorded."""
        from zoo.checkpoint.digests import check_manifest
        from zoo.conversion.cache import resolve_adapted
        from zoo.evaluation.record import is_recordable
        from zoo.exporting.session import open_session

        if isinstance(self._model, Model):
            values = {**self._compute, **self._source}
            for name in LOADED:
                if values[name] not in (None, "auto", []):
                    raise UsageError(f"a loaded model already has its {name}", "leave it out")
            self._evaluation.require_supported(self._model.checkpoint)
            return self._model.checkpoint, self._model.session
        source = dict(self._source)
        checkpoint = resolve_adapted(self.reference, source.pop("adapter"), **source)
        # These come before loading the weights.
        self._evaluation.require_supported(checkpoint)
        self._evaluation.check_options(checkpoint, self.options)
        self.recorded = self._record and is_recordable(self.reference, checkpoint)
        if self.recorded:
            check_manifest(checkpoint.path)
        elif self._record:
            LOG.info(
                "the result is not recorded: %s is not the directory of a converted model",
                self.reference,
            )
        session = open_session(
            checkpoint, **self._compute, fastest=True, needs=self._evaluation.needs
        )
        return checkpoint, session

    def write(self, result: "Result", command: Sequence[str] = ()) -> None:
        """Write the figures and the report, which shows the command that repeats it."""
        if self._figures is not None:
            from zoo.report.figures import plot_confusion, plot_reliability

            folder = Path(self._figures)
            plot_confusion(folder / CONFUSION_FILE, result.details["confusion"])
            plot_reliability(folder / RELIABILITY_FILE, result.details["reliability"])
        self._output.finish(self.settings, result, command)


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
        self, evaluation: "Evaluation", on_prediction: OnPrediction | None
    ) -> "Iterator[OnPrediction | None]":
        """Yield the function that gets predictions, or ``None``."""
        from zoo.evaluation.mistakes import MistakeCollector
        from zoo.io.output.tables import table_writer

        self._collector = MistakeCollector(evaluation.mistake, evaluation.class_labels)
        sinks: list[OnPrediction] = [] if on_prediction is None else [on_prediction]
        if self.report is not None:
            sinks.append(self._collector.add)
        with ExitStack() as stack:
            if self.predictions is not None:
                writer = table_writer(
                    self.predictions, **self._options, excel_safe=self._excel_safe
                )
                sinks.append(stack.enter_context(writer))

            def collect(row: Mapping[str, Any]) -> None:
                for sink in sinks:
                    sink(row)

            yield collect if sinks else None

    def finish(self, settings: Mapping[str, Any], result: "Result", command: Sequence[str]) -> None:
        """Write the report."""
        from zoo.io.output.atomic import atomic_write
        from zoo.io.output.full_disks import writing
        from zoo.io.page_text import shell_line
        from zoo.io.yaml import dump_yaml
        from zoo.report.evaluation import evaluation_page

        if self.report is None:
            return
        files = ", ".join(Path(path).name for path in settings["data"])
        lead = f"{settings['task']} on {files}"
        repeat = ""
        if command:
            # The command has relative paths.
            repeat = f"{shell_line(['cd', str(Path.cwd())])} && {shell_line(command)}"
        page = evaluation_page(
            settings["reference"],
            lead,
            result.metrics,
            result.details,
            self._collector.mistakes(),
            dump_yaml(dict(settings)),
            repeat,
        )
        with writing(self.report):
            atomic_write(self.report, page)


def _require_known(evaluation: "type[Evaluation]", options: Mapping[str, Any]) -> None:
    """Check that an evaluation has options of these names."""
    names = []
    for base in evaluation.__mro__:
        if base is object or "__init__" not in vars(base):
            continue
        for parameter in inspect.signature(vars(base)["__init__"]).parameters.values():
            if parameter.kind is parameter.KEYWORD_ONLY:
                names.append(parameter.name)
    for name in options:
        if name not in names:
            raise UsageError(
                f"{evaluation.name} has no option {name!r}",
                did_you_mean(name, names) or f"it has {', '.join(sorted(set(names)))}",
            )
