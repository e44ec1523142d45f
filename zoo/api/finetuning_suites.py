"""``zoo.finetune_suite``: a model for each task of a benchmark or one of all, and its table."""

import logging
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from zoo.api.arguments import AnyPath, as_path, as_reference, checked
from zoo.api.evaluating_suites import open_suite_model, split_names
from zoo.api.training import finetune
from zoo.data.readers.problems import InvalidRows
from zoo.errors import SourceError, UsageError, ZooError
from zoo.io.json import encode_json
from zoo.io.numbers import int_from_environment
from zoo.io.output.atomic import atomic_write
from zoo.io.output.full_disks import writing
from zoo.io.output.staging import discard_unused
from zoo.plugins.suites import find_suite

if TYPE_CHECKING:
    from zoo.suites.base import Suite, SuiteResult, TrainingData

LOG = logging.getLogger("zoo")
RESULTS = "suite.json"  # The table, in the directory of the runs.
TABLES = "tables"  # Directory of the tables that tasks write.
MODEL = "model"
AVERAGE = "average"
SCORE = "score"
# Options of ``zoo.finetune`` that the suite decides.
TASK_OPTIONS = ("task", "train", "eval", "weight", "text", "pair", "label")
# Options that begin a single run in another way.
SINGLE_RUN_OPTIONS = (
    "resume",
    "continue_from",
    "reset_optimizer",
    "from_scratch",
    "force",
    "dry_run",
)


@dataclass(frozen=True)
class SuiteTraining:
    """Result of ``zoo.finetune_suite``.

    Attributes:
        path: directory with a run, or runs over several seeds, for each task or all.
        suite: name of the suite.
        runs: name of a task, or ``mixture``, -> its directory.
        average: average of the suite -> see ``tasks``.
        tasks: name of a task -> name of a metric, or ``score`` -> ``mean`` over the seeds, ``std``,
            their standard deviation (n - 1; absent for one seed), and ``values``.
        missing: names of averaged tasks without a result.
        missing_files: name of a task whose files are missing -> what is missing.
        failures: name of a task that failed -> its error, which says what to do.
    """

    path: Path
    suite: str
    runs: Mapping[str, Path]
    average: Mapping[str, Any]
    tasks: Mapping[str, Mapping[str, Mapping[str, Any]]]
    missing: Sequence[str] = ()
    missing_files: Mapping[str, str] = field(default_factory=dict)
    failures: Mapping[str, ZooError] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Return what the command prints with ``--json``."""
        return {
            "path": str(self.path),
            "suite": self.suite,
            "runs": {name: str(path) for name, path in self.runs.items()},
            "average": dict(self.average),
            "tasks": {name: dict(metrics) for name, metrics in self.tasks.items()},
            "missing": list(self.missing),
            "missing_files": dict(self.missing_files),
            "failures": {name: str(error) for name, error in self.failures.items()},
        }


@checked
def finetune_suite(
    model: AnyPath,
    suite: str,
    data: AnyPath,
    *,
    output: AnyPath,
    tasks: str | Sequence[str] = (),
    mixture: bool = False,
    seeds: int | None = None,
    auto_resume: bool = False,
    **options: Any,
) -> SuiteTraining:
    """Fine-tune a model on each task of a suite, and evaluate it; as ``zoo finetune --suite``.

    Each task is a run in a directory with its name. A task whose files are missing or damaged, or
    whose run fails or cannot be resumed, is named in a warning, and the others are trained. With
    several processes, the first run that fails ends all.

    Args:
        model: reference to a model, a family for random weights, or a YAML file of settings.
        suite: name of a suite that models are fine-tuned for, such as ``glue``.
        data: directory of its files.
        output: directory of the runs.
        tasks: names of the tasks; by default all.
        mixture: train one text-to-text model on all tasks. An epoch has all samples, or of each
            task ``min(samples, K)`` with the setting ``data.mixing_limit`` K; with the setting
            ``data.temperature`` T, rates are proportional to these to the power of 1 / T (Raffel et
            al. 2020, arXiv:1910.10683, section 3.5.2).
        seeds: train this number of runs of each task.
        auto_resume: go on in ``output``, with the same settings: finished runs are left as they
            are, and one that was interrupted resumes.
        **options: options of ``zoo.finetune``, for all tasks, such as ``learning_rate``.

    Returns:
        The metrics of each task and the average, with mean and spread over the seeds.
        ``suite.json`` in ``output`` has the same.

    Raises:
        UsageError: the suite or an option is unknown, or the directory exists.
        SourceError: the model is missing, or the files of all tasks.
        ZooError: all tasks failed, with the exit code of the first one.
        Interrupted: a signal came; the same call with ``auto_resume`` continues.

    Example:
        >>> training = zoo.finetune_suite(  # doctest: +SKIP
        ...     "runs/books/model", "glue", "GLUE", output="runs/glue", seeds=5
        ... )
        >>> training.average["mean"], training.average["std"]  # doctest: +SKIP
        (78.3, 0.4)
    """
    from zoo.suites.mixture import MIXTURE, mix_tasks

    declaration: Suite = find_suite(suite)
    if not declaration.is_finetuned:
        raise UsageError(
            f"models are not fine-tuned for {declaration.title}",
            f"measure one by `zoo eval REF --suite {suite} DIR`",
        )
    path = as_path(output, "output")
    data_path = as_path(data, "file")
    assert path is not None and data_path is not None, "both are given"
    _require_possible(options)
    if path.exists() and not auto_resume:
        raise UsageError(f"{path} exists", "go on with --auto-resume, or give another -o")
    reference = as_reference(model)
    names = split_names(tasks)
    is_main_process = int_from_environment("RANK", 0) == 0
    is_new = not path.exists()
    text_to_text = _is_text_to_text(reference, offline=bool(options.get("offline")))
    if mixture and not text_to_text:
        raise UsageError(
            f"--mixture trains a text-to-text model, and {reference} is not one",
            "leave it out, or name a text-to-text model",
        )
    try:
        prepared = _prepare(declaration, names, data_path, path / TABLES, text_to_text=text_to_text)
        if mixture:
            prepared = replace(prepared, data={MIXTURE: mix_tasks(prepared.data)})
        runs, failures = _train(reference, path, prepared, seeds, options)
    finally:
        if is_main_process and is_new and path.is_dir():
            discard_unused(path, TABLES)  # No run has begun.
    results = []
    if is_main_process:
        results = _evaluate(declaration, names, data_path, runs, options)
    result = _summarize(declaration, path, runs, results, prepared.missing_files, failures)
    if results:
        with writing(path / RESULTS, remains=f"the runs in {path} remain"):
            atomic_write(path / RESULTS, encode_json(result.to_dict()))
    return result


@dataclass(frozen=True)
class PreparedTasks:
    """What the tasks of a suite are trained on, by their names."""

    data: "Mapping[str, TrainingData]"
    missing_files: Mapping[str, str]  # What is missing of tasks without files.
    failures: Mapping[str, ZooError]  # Errors of tasks whose files do not suit them.


def _train(
    reference: str,
    path: Path,
    prepared: PreparedTasks,
    seeds: int | None,
    options: Mapping[str, Any],
) -> tuple[dict[str, Path], dict[str, ZooError]]:
    """Train a model for each task, or continue.

    Returns:
        The directories of the runs, and the errors of tasks that failed, by name.

    Raises:
        ZooError: no task has a run, or two failed in the same way before any had one: their data
            is not the cause.
    """
    from zoo.suites.failures import ends_suite, error_line, no_result

    # Other processes do not know that one has failed, and would wait for it.
    is_single_process = int_from_environment("WORLD_SIZE", 1) == 1
    runs: dict[str, Path] = {}
    failures = dict(prepared.failures)
    for number, (name, training) in enumerate(prepared.data.items(), 1):
        LOG.info("task %s of %s: %s", number, len(prepared.data), name)
        directory = path / name
        try:
            _require_run(directory)
            _train_task(reference, directory, seeds, _options_of_task(options, training))
        except ZooError as error:
            if ends_suite(error) or not is_single_process:
                raise
            if not runs and str(error) in map(str, failures.values()):
                raise
            LOG.warning("warning: %s fails: %s", name, error_line(error))
            failures[name] = error
            continue
        runs[name] = directory
    if not runs:
        raise no_result(failures, "no task was trained")
    return runs, failures


def _train_task(
    reference: str, directory: Path, seeds: int | None, options: Mapping[str, Any]
) -> None:
    """Train the model of a task, or of several seeds, or continue."""
    try:
        finetune(reference, output=directory, auto_resume=True, seeds=seeds, **options)
    except InvalidRows as error:
        raise error.without_option() from error


def _require_run(path: Path) -> None:
    """Check that a directory holds a run, which is resumed, or does not exist."""
    from zoo.training.state.progress import is_seed_directory
    from zoo.training.state.run_manifest import MANIFEST

    if path.exists() and not (path / MANIFEST).is_file() and not is_seed_directory(path):
        raise UsageError(
            f"{path} is not a run, it has no {MANIFEST}",
            "move it away; --auto-resume then trains the task from the beginning",
        )


def _require_possible(options: Mapping[str, Any]) -> None:
    """Check the options that ``zoo.finetune`` has and a suite does not."""
    for name in TASK_OPTIONS:
        if options.get(name) not in (None, ()):
            flag = name.replace("_", "-")
            raise UsageError(f"--suite decides --{flag}", f"leave --{flag} out")
    for name in SINGLE_RUN_OPTIONS:
        if options.get(name) not in (None, False):
            flag = name.replace("_", "-")
            raise UsageError(
                f"--suite trains several runs, and --{flag} is for one",
                f"leave --{flag} out; --auto-resume continues all",
            )
    if options.get("skip_invalid"):
        raise UsageError(
            "--suite reads files as published, and --skip-invalid would change what is measured",
            "leave --skip-invalid out",
        )


def _is_text_to_text(reference: str, *, offline: bool) -> bool:
    """Return whether a model generates a text from a text."""
    from zoo.api.settings import finetune_values
    from zoo.conversion.cache import resolve_checkpoint
    from zoo.plugins import get_family
    from zoo.suites.base import TEXT_TO_TEXT

    values = finetune_values(reference)
    source = (values.get("init_from") or {}).get("model")
    if source is None:
        heads = get_family(values["family"]).heads()
        return any(TEXT_TO_TEXT in head.tasks for head in heads.values())
    return TEXT_TO_TEXT in resolve_checkpoint(source, offline=offline).head.tasks


def _prepare(
    suite: "Suite", names: Sequence[str], data: Path, folder: Path, *, text_to_text: bool
) -> PreparedTasks:
    """Find and check the data of the tasks that are trained.

    Raises:
        ZooError: there is none.
    """
    from zoo.suites.failures import ends_suite, error_line, no_result

    trainings = {}
    missing_files = {}
    failures: dict[str, ZooError] = {}
    first_error = None
    for task in suite.select_tasks(names):
        try:
            training = task.prepare_training(data, folder / task.name, text_to_text=text_to_text)
        except SourceError as error:
            first_error = first_error or error
            missing_files[task.name] = error.what
            LOG.warning("warning: %s is not trained: %s", task.name, error.what)
            continue
        except ZooError as error:
            if ends_suite(error):
                raise
            LOG.warning("warning: %s is not trained: %s", task.name, error_line(error))
            failures[task.name] = error
            continue
        if training is not None:
            trainings[task.name] = training
    if not trainings and failures:
        raise no_result(failures, "no task can be trained")
    if not trainings:
        raise first_error or UsageError(
            f"no model is trained for {', '.join(names)}", "select other tasks with --tasks"
        )
    return PreparedTasks(trainings, missing_files, failures)


def _options_of_task(options: Mapping[str, Any], training: "TrainingData") -> dict[str, Any]:
    """Return the arguments of ``zoo.finetune`` for a task; the user's settings take precedence."""
    settings = {**training.settings, **(options.get("settings") or {})}
    return {
        **options,
        **training.columns,
        "task": training.task,
        "train": training.train,
        "eval": training.eval,
        "settings": settings or None,
    }


def _evaluate(
    suite: "Suite",
    names: Sequence[str],
    data: Path,
    runs: Mapping[str, Path],
    options: Mapping[str, Any],
) -> "list[SuiteResult]":
    """Return the results of each seed, of the model or models with that seed."""
    from zoo.suites.evaluate import evaluate_suite
    from zoo.suites.mixture import MIXTURE
    from zoo.training.state.progress import is_seed_directory, seed_directories

    compute = {"backend": "auto", "dtype": None}
    compute |= {name: options.get(name) for name in ("device", "threads")}
    source: dict[str, Any] = {
        "adapter": [],
        "revision": None,
        "offline": bool(options.get("offline")),
        "lock": None,
    }
    models: list[dict[str, str]] = []
    for name, path in runs.items():
        directories = seed_directories(path) if is_seed_directory(path) else [path]
        for number, directory in enumerate(directories):
            if number == len(models):
                models.append({})
            model = str(directory / MODEL)
            if name == MIXTURE:
                models[number] = {task.model_name: model for task in suite.tasks}
            else:
                models[number][name] = model
    results = []
    for references in models:
        result = evaluate_suite(
            suite,
            references,
            data,
            lambda reference: open_suite_model(reference, compute, source),
            tasks=names,
            record=True,
        )
        results.append(result)
    return results


def _summarize(
    suite: "Suite",
    path: Path,
    runs: Mapping[str, Path],
    results: "Sequence[SuiteResult]",
    missing_files: Mapping[str, str],
    failures: Mapping[str, ZooError],
) -> SuiteTraining:
    """Return mean and spread over the results of the seeds, of the tasks that all seeds have."""
    from zoo.suites.failures import no_result

    tasks: dict[str, dict[str, dict[str, Any]]] = {}
    average: dict[str, Any] = {}
    all_failures = dict(failures)
    for result in results:
        for name, error in result.failures.items():
            all_failures.setdefault(name, error)
    complete_results = []
    for result in results:
        scores = {}
        for name, score in result.scores.items():
            if name not in all_failures:
                scores[name] = score
        complete_results.append(replace(result, scores=scores))
    if results:
        if not complete_results[0].scores:
            raise no_result(all_failures, "no task was evaluated with all seeds")
        average = spread([result.average for result in complete_results])
    for name in complete_results[0].scores if results else ():
        task_scores = [result.scores[name] for result in complete_results]
        tasks[name] = {}
        for metric in task_scores[0].metrics:
            tasks[name][metric] = spread([score.metrics[metric] for score in task_scores])
        tasks[name][SCORE] = spread([score.score for score in task_scores])
    missing = [task.name for task in suite.tasks if task.is_averaged and task.name not in tasks]
    return SuiteTraining(
        path, suite.name, runs, average, tasks, missing, missing_files, all_failures
    )


def spread(values: Sequence[float]) -> dict[str, Any]:
    """Return mean, standard deviation (n - 1) of several values, and the values."""
    result: dict[str, Any] = {"mean": statistics.fmean(values), "values": list(values)}
    if len(values) > 1:
        result["std"] = statistics.stdev(values)
    return result
