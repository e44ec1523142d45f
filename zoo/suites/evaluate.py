"""Evaluation of models on the tasks of a suite."""

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from zoo.checkpoint.records import CONFIG
from zoo.errors import SourceError, UsageError, ZooError
from zoo.evaluation.record import is_recordable
from zoo.suites.base import Suite, SuiteModel, SuiteResult, SuiteTask, TaskScore
from zoo.suites.failures import ends_suite, error_line, no_result
from zoo.suites.mixture import MIXTURE
from zoo.training.state.location import resume_command
from zoo.training.state.progress import is_seed_directory
from zoo.training.state.run_manifest import MANIFEST

if TYPE_CHECKING:
    from zoo.checkpoint import Checkpoint
    from zoo.inference import Session

LOG = logging.getLogger("zoo")
MODEL = "model"  # Directory of the model of a run.
OpenModel = Callable[[str], "tuple[Checkpoint, Session]"]
OnPredictions = Callable[[str, str], None]


def find_models(suite: Suite, tasks: Sequence[SuiteTask], reference: str) -> Mapping[str, str]:
    """Return the name of each task that has a model -> the reference of the model.

    Args:
        suite: the suite.
        tasks: the tasks that are evaluated.
        reference: a model, the run of one, or a directory with models or runs that are named as
            tasks.
    """
    if not suite.is_finetuned:
        return {task.model_name: reference for task in tasks}
    names = [task.model_name for task in suite.tasks]
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
    for path in (directory / MIXTURE, directory):
        if (path / MODEL).is_dir():
            return dict.fromkeys(names, str(path / MODEL))
    if directory.is_dir() and not (directory / CONFIG).is_file():
        raise UsageError(
            f"{directory} has no model of a task of {suite.title}",
            f"give a directory with models or runs called {', '.join(dict.fromkeys(names))}, or a "
            "text-to-text model",
        )
    return dict.fromkeys(names, reference)


class TaskFiles(NamedTuple):
    """Files of the tasks of a suite, by the names of the tasks."""

    files: Mapping[str, Sequence[Path]]  # What models are evaluated on.
    test_files: Mapping[str, Sequence[Path]]  # What they answer for the leaderboard.
    missing: Mapping[str, str]  # What is missing of tasks without files.

    @classmethod
    def find(
        cls, tasks: Sequence[SuiteTask], data: Path, *, test: bool, required: Collection[str]
    ) -> "TaskFiles":
        """Look for the files of tasks.

        Args:
            tasks: the tasks.
            data: the directory of the suite.
            test: whether to look for test files as well.
            required: names of tasks that are missing if their files are, in addition to those
                that are averaged.

        Raises:
            SourceError: no task has its files.
        """
        files = {}
        test_files = {}
        missing = {}
        first_error = None
        for task in tasks:
            try:
                files[task.name] = task.find_files(data)
            except SourceError as error:
                first_error = first_error or error
                if task.is_averaged or task.name in required:
                    missing[task.name] = error.what
            if not (test and task.submission_names):
                continue
            try:
                test_files[task.name] = task.find_test_files(data)
            except SourceError as error:
                LOG.warning("warning: %s has no test file: %s", task.name, error.what)
        if first_error is not None and not files:
            raise first_error
        return cls(files, test_files, missing)


class SuiteModels:
    """The models of a suite, one of which is in memory.

    Args:
        suite: the suite.
        references: name of a task -> reference of its model, see ``find_models``.
        open_model: opens the model of a reference.
        limit: see ``SuiteModel``.
        record: see ``evaluate_suite``.
    """

    def __init__(
        self,
        suite: Suite,
        references: Mapping[str, str],
        open_model: OpenModel,
        *,
        limit: int | None,
        record: bool,
    ) -> None:
        self.references = references
        self._suite = suite
        self._open_model = open_model
        self._limit = limit
        self._record = record
        is_shared = len(references) > 1 and len(set(references.values())) == 1
        self._is_shared = suite.is_finetuned and is_shared
        self._last_reference = ""
        self._last_model: SuiteModel | None = None

    @property
    def has_failed_for_all(self) -> bool:
        """Whether the only model of all tasks could not be loaded."""
        return self._last_model is None and len(set(self.references.values())) == 1

    def load(self, task: SuiteTask) -> SuiteModel:
        """Return the model of a task, which has one."""
        reference = self.references[task.model_name]
        if self._last_model is not None and reference == self._last_reference:
            return self._last_model
        self._last_model = None  # Its memory is needed for the next one.
        _require_finished(Path(reference))
        checkpoint, session = self._open_model(reference)
        record = self._record and is_recordable(reference, checkpoint)
        model = SuiteModel(checkpoint, session, self._limit, record)
        if self._is_shared and not model.is_text_to_text:
            raise UsageError(
                f"{reference}, with the head {checkpoint.head_name}, does not answer all tasks of "
                f"{self._suite.title}",
                "give a directory with a model for each task, or a text-to-text model",
            )
        self._last_reference = reference
        self._last_model = model
        return model


def _require_finished(path: Path) -> None:
    """Check that a directory is not a run whose training has not ended; raises ``SourceError``."""
    has_begun = (path / MANIFEST).is_file() or is_seed_directory(path)
    if has_begun and not (path / MODEL).is_dir():
        raise SourceError(
            f"{path} has no model, its training has not ended",
            f"`{resume_command('finetune', path)}` ends it",
        )


def evaluate_suite(
    suite: Suite,
    references: Mapping[str, str],
    data: Path,
    open_model: OpenModel,
    *,
    tasks: Sequence[str] = (),
    limit: int | None = None,
    record: bool = False,
    on_predictions: OnPredictions | None = None,
) -> SuiteResult:
    """Return the scores of one model, or of a model for each task.

    A task whose files are missing, or that fails, is named in a warning, and the other tasks are
    evaluated.

    Args:
        suite: the suite.
        references: name of a task -> reference of its model, see ``find_models``.
        data: directory of the suite's files.
        open_model: opens the model of a reference.
        tasks: names of the tasks to evaluate; by default all.
        limit: number of samples of each file; ``None`` for all.
        record: write results into the manifests of models that are directories.
        on_predictions: gets the name and the content of each file for the leaderboard, of the
            tasks that have a test file.

    Raises:
        UsageError: there is no such task, no model of one, or one that does not suit its task.
        SourceError: no task has its files.
    """
    models = SuiteModels(suite, references, open_model, limit=limit, record=record)
    tasks_with_model, without_model = _divide_by_model(suite.select_tasks(tasks), references)
    # All files are found before the first model is evaluated.
    task_files = TaskFiles.find(
        tasks_with_model, data, test=on_predictions is not None, required=tasks
    )
    for name, problem in task_files.missing.items():
        LOG.warning("warning: %s is not evaluated: %s", name, problem)
    scores: dict[str, TaskScore] = {}
    obstacles: dict[str, str] = {}
    failures: dict[str, ZooError] = {}
    for task in tasks_with_model:
        if task.name not in task_files.files and task.name not in task_files.test_files:
            continue
        try:
            model = models.load(task)
            obstacle = task.obstacle(model)
            if obstacle:
                LOG.warning("warning: %s is not evaluated: %s", task.name, obstacle)
                obstacles[task.name] = obstacle
                continue
            LOG.info("%s: %s", suite.title, task.title)
            if task.name in task_files.files:
                scores[task.name] = task.evaluate(model, task_files.files[task.name])
            if on_predictions is not None and task.name in task_files.test_files:
                _predict(task, model, task_files.test_files[task.name], on_predictions)
        except ZooError as error:
            if ends_suite(error) or models.has_failed_for_all:
                raise
            LOG.warning("warning: %s fails: %s", task.name, error_line(error))
            failures[task.name] = error
    if not scores:
        raise _no_score(failures, {**obstacles, **task_files.missing})
    return SuiteResult(suite, scores, [*without_model, *obstacles], task_files.missing, failures)


def _divide_by_model(
    tasks: Sequence[SuiteTask], references: Mapping[str, str]
) -> tuple[list[SuiteTask], list[str]]:
    """Return the tasks that have a model, and the names of the others.

    Raises:
        UsageError: none has a model.
    """
    tasks_with_model = []
    without_model = []
    for task in tasks:
        if task.model_name in references:
            tasks_with_model.append(task)
        else:
            without_model.append(task.name)
    if not tasks_with_model:
        raise UsageError(
            f"there is no model of {', '.join(without_model)}",
            f"select tasks that have one with --tasks: {', '.join(references)}",
        )
    return tasks_with_model, without_model


def _predict(
    task: SuiteTask, model: SuiteModel, test_files: Sequence[Path], on_predictions: OnPredictions
) -> None:
    """Pass the answers to the test files of a task on."""
    for name, content in task.predict(model, test_files).items():
        on_predictions(name, content)


def _no_score(failures: Mapping[str, ZooError], problems: Mapping[str, str]) -> ZooError:
    """Return the error of a suite of which no task was evaluated; problems by name of the task."""
    if failures:
        return no_result(failures, "no task was evaluated")
    reasons = [f"{name}: {problem}" for name, problem in problems.items()]
    return UsageError(f"no task was evaluated: {'; '.join(reasons)}", "select other tasks")
