"""Evaluation of models on the tasks of a suite."""

import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from zoo.checkpoint.records import CONFIG
from zoo.errors import SourceError, UsageError
from zoo.evaluation.record import is_recordable
from zoo.suites.base import Suite, SuiteModel, SuiteResult, SuiteTask

if TYPE_CHECKING:
    from zoo.checkpoint import Checkpoint
    from zoo.inference import Session

LOG = logging.getLogger("zoo")
MODEL = "model"  # Directory of the model of a run.
OpenModel = Callable[[str], "tuple[Checkpoint, Session]"]


def find_models(suite: Suite, reference: str) -> Mapping[str, str]:
    """Return the name of each task that has a model -> the reference of the model.

    Args:
        suite: the suite.
        reference: a model, or a directory with models or runs that have the names of tasks.
    """
    names = [task.model_name for task in suite.tasks]
    if not suite.is_finetuned:
        return dict.fromkeys(names, reference)
    directory = Path(reference).expanduser()
    models = {}
    for name in dict.fromkeys(names):
        path = directory / name
        if (path / MODEL).is_dir():
            models[name] = str(path / MODEL)
        elif path.is_dir():
            models[name] = str(path)
    if models:
        return models
    if directory.is_dir() and not (directory / CONFIG).is_file():
        raise UsageError(
            f"{directory} has no model of a task of {suite.title}",
            f"give a directory with models or runs called {', '.join(dict.fromkeys(names))}, or a "
            "text-to-text model",
        )
    return dict.fromkeys(names, reference)


def find_task_files(
    tasks: Sequence[SuiteTask], data: Path
) -> tuple[dict[str, Sequence[Path]], dict[str, str]]:
    """Return name -> files of the tasks, and name -> what is missing of those without files.

    Raises:
        SourceError: no task has its files.
    """
    files = {}
    problems = {}
    first_error = None
    for task in tasks:
        try:
            files[task.name] = task.find_files(data)
        except SourceError as error:
            problems[task.name] = error.what
            first_error = first_error or error
    if first_error is not None and not files:
        raise first_error
    return files, problems


def evaluate_suite(
    suite: Suite,
    reference: str,
    data: Path,
    open_model: OpenModel,
    *,
    tasks: Sequence[str] = (),
    limit: int | None = None,
    record: bool = False,
) -> SuiteResult:
    """Return the scores of one model, or of a model for each task.

    A task whose files are missing is named in a warning, and the other tasks are evaluated.

    Args:
        suite: the suite.
        reference: see ``find_models``.
        data: directory of the suite's files.
        open_model: opens the model of a reference.
        tasks: names of the tasks to evaluate; by default all.
        limit: number of samples of each file; ``None`` for all.
        record: write results into the manifests of models that are directories.

    Raises:
        UsageError: there is no such task, no model of one, or one that does not suit its task.
        SourceError: no task has its files.
    """
    selected_tasks = suite.select_tasks(tasks)
    models = find_models(suite, reference)
    tasks_with_model = []
    without_model = []
    for task in selected_tasks:
        if task.model_name in models:
            tasks_with_model.append(task)
        else:
            without_model.append(task.name)
    # All files are found before the first model is evaluated.
    files, missing_files = find_task_files(tasks_with_model, data)
    for name, problem in missing_files.items():
        LOG.warning("warning: %s is not evaluated: %s", name, problem)
    scores = {}
    model = None
    model_reference = ""
    for task in tasks_with_model:
        if task.name not in files:
            continue
        if model is None or models[task.model_name] != model_reference:
            model = None  # Its memory is needed for the next one.
            model_reference = models[task.model_name]
            checkpoint, session = open_model(model_reference)
            records = record and is_recordable(model_reference, checkpoint)
            model = SuiteModel(checkpoint, session, limit, records)
            if suite.is_finetuned and model_reference == reference and len(suite.tasks) > 1:
                _require_text_to_text(suite, model, reference)
        obstacle = task.obstacle(model)
        if obstacle:
            LOG.warning("warning: %s is not evaluated: %s", task.name, obstacle)
            without_model.append(task.name)
            continue
        LOG.info("%s: %s", suite.title, task.title)
        scores[task.name] = task.evaluate(model, files[task.name])
    return SuiteResult(suite, scores, without_model, missing_files)


def _require_text_to_text(suite: Suite, model: SuiteModel, reference: str) -> None:
    """Check that the only model of a suite can answer all of its tasks."""
    if model.is_text_to_text:
        return
    raise UsageError(
        f"{reference} has the head {model.checkpoint.head_name}, and {suite.title} has "
        f"{len(suite.tasks)} tasks",
        "give a directory with a model for each task, or a text-to-text model",
    )
