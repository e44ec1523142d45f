"""What a suite declares: its tasks, where their files are, what is measured, and the average."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from zoo.data.readers.problems import InvalidRows
from zoo.errors import UsageError, ZooError, did_you_mean
from zoo.evaluation.base import Result
from zoo.evaluation.record import evaluation_record, record_evaluation
from zoo.tasks import make_evaluation

if TYPE_CHECKING:
    from zoo.checkpoint import Checkpoint
    from zoo.inference import Session

Shared = TypeVar("Shared")
TEXT_TO_TEXT = "seq2seq"  # The task of heads that generate a text from a text.
SKIP_INVALID = "data.skip_invalid"  # The setting of runs whose published files have broken rows.


@dataclass(frozen=True)
class TaskScore:
    """Result of a model on a task.

    Attributes:
        metrics: name -> value, in the order of the suite's tables.
        score: what the average is taken over, in percent.
    """

    metrics: Mapping[str, float]
    score: float

    @classmethod
    def from_metrics(cls, metrics: Mapping[str, float]) -> "TaskScore":
        """Return the score of metrics from 0 to 1 (correlations: from -1), which is their mean."""
        return cls(metrics, 100 * mean(metrics.values()))


@dataclass(frozen=True)
class SuiteModel:
    """A model that is evaluated on a task.

    Attributes:
        checkpoint: the checkpoint.
        session: the model.
        limit: number of samples of a file to use; ``None`` for all.
        records: whether results go into the manifest of the model's directory.
        shared: what ``share`` has made.
    """

    checkpoint: "Checkpoint"
    session: "Session"
    limit: int | None = None
    records: bool = False
    shared: dict[str, Any] = field(default_factory=dict, repr=False, compare=False)

    def share(self, key: str, make: Callable[[], Shared]) -> Shared:
        """Return what several tasks of a suite need, such as a classifier; the first one makes it.

        Args:
            key: what it is.
            make: makes it.
        """
        if key not in self.shared:
            self.shared[key] = make()
        value: Shared = self.shared[key]
        return value

    @property
    def is_text_to_text(self) -> bool:
        """Whether the model answers by a text that it generates."""
        return TEXT_TO_TEXT in self.checkpoint.head.tasks

    def evaluate(self, name: str, files: Sequence[Path], **options: Any) -> Result:
        """Return the result of an evaluation of ``zoo eval`` over files, as one data set.

        Args:
            name: name of the evaluation, such as ``text-classification``.
            files: the files; a name of a data set may precede one, such as ``glue/rte=dev.tsv``.
            **options: options of the evaluation; ``None`` for its default.
        """
        settings = {key: value for key, value in options.items() if value is not None}
        if self.limit is not None:
            settings["limit"] = self.limit
        evaluation = make_evaluation(name, self.checkpoint, self.session, **settings)
        try:
            result = evaluation.evaluate(files)
        except InvalidRows as error:
            raise error.without_option() from error
        if self.records:
            tables, _ = type(evaluation).split_names(files, settings)
            record = evaluation_record(name, tables, settings, self.session, result)
            record_evaluation(self.checkpoint.path, record)
        return result

    def record(
        self,
        name: str,
        files: Sequence[Path],
        settings: Mapping[str, Any],
        metrics: Mapping[str, float],
    ) -> None:
        """Write metrics into the manifest of the model, if results are recorded.

        Args:
            name: name of the evaluation of ``zoo eval`` for the model.
            files: the data.
            settings: what the metrics depend on, in addition to the limit.
            metrics: the metrics.
        """
        if not self.records:
            return
        settings = dict(settings)
        if self.limit is not None:
            settings["limit"] = self.limit
        record = evaluation_record(name, files, settings, self.session, Result(metrics))
        record_evaluation(self.checkpoint.path, record)


@dataclass(frozen=True, kw_only=True)
class TrainingData:
    """What ``zoo finetune`` learns a task from.

    Attributes:
        task: name of the task.
        train: training data.
        eval: evaluation data; empty for those that the task has by default.
        columns: ``text``, ``pair`` or ``label`` -> its column; empty for those by default.
        settings: further settings, such as ``data.labels``.
    """

    task: str
    train: tuple[str, ...]
    eval: tuple[str, ...] = ()
    columns: Mapping[str, str] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class SuiteTask(ABC):
    """A task of a suite. A subclass says where its files are, and what is measured.

    Attributes:
        name: name on the command line, and of the directory of its model: ``cola``.
        title: name in tables: ``CoLA``.
        is_averaged: whether the average is also over this task. Diagnostic sets are not.
        trained_as: name of the task whose model is evaluated; empty for the task itself.
        submission_names: names of the files with answers that the suite's leaderboard takes; empty
            if it has no test file.
    """

    name: str
    title: str
    is_averaged: bool = True
    trained_as: str = ""
    submission_names: tuple[str, ...] = ()

    @property
    def model_name(self) -> str:
        """Name of the task whose model is evaluated."""
        return self.trained_as or self.name

    @abstractmethod
    def find_files(self, data: Path) -> Sequence[Path]:
        """Return the files that models are evaluated on.

        Args:
            data: the directory of the suite's files.

        Returns:
            The files, in the order that ``evaluate`` gets them.

        Raises:
            SourceError: a file is missing; the message names it.
        """

    def prepare_training(
        self, data: Path, folder: Path, *, text_to_text: bool
    ) -> TrainingData | None:
        """Return what a model of the task is trained on; by default, the task is not trained.

        Args:
            data: the directory of the suite's files.
            folder: where the task may write tables.
            text_to_text: whether the model generates its answers.

        Returns:
            The data; ``None`` if no model is trained for the task.

        Raises:
            SourceError: a file is missing.
            UsageError: a file does not suit the task.
        """
        return None

    def find_test_files(self, data: Path) -> Sequence[Path]:
        """Return the test files, whose labels only the leaderboard knows; see ``find_files``."""
        raise NotImplementedError(f"{self.title} has no test files")

    def predict(self, model: SuiteModel, files: Sequence[Path]) -> Mapping[str, str]:
        """Return the answers to the test files as the leaderboard takes them.

        Args:
            model: the model.
            files: what ``find_test_files`` returned.

        Returns:
            Names of ``submission_names`` -> content of the file.
        """
        raise NotImplementedError(f"{self.title} has no test files")

    def obstacle(self, model: SuiteModel) -> str:
        """Return why a model of the suite's form cannot do the task; by default nothing.

        Such a task is left out with a warning, as one without a model.
        """
        return ""

    @abstractmethod
    def evaluate(self, model: SuiteModel, files: Sequence[Path]) -> TaskScore:
        """Return the result of a model.

        Args:
            model: the model.
            files: what ``find_files`` returned.

        Raises:
            UsageError: the model or a file does not suit the task.
            VerificationError: a file is damaged.
        """


@dataclass(frozen=True)
class Suite:
    """Declaration of a suite.

    A built-in one is a file and a line in ``zoo.plugins.suites``, a plugin's an entry point of
    ``zoo.api1.suites``.

    Attributes:
        name: name on the command line: ``glue``.
        title: name in tables: ``GLUE``.
        tasks: the tasks, in the order of tables.
        source: paper.
        is_finetuned: whether a model is trained for each task, as for GLUE. The reference is then a
            directory of models or runs with the names of the tasks, or a text-to-text model that
            answers all of them. Otherwise one model is measured on all tasks.
        reads_folder: whether the files are in a directory that the user names.
    """

    name: str
    title: str
    tasks: tuple[SuiteTask, ...]
    source: str = ""
    is_finetuned: bool = False
    reads_folder: bool = True

    def average(self, scores: Mapping[str, TaskScore]) -> float:
        """Return the average, in percent: the mean of the tasks' scores.

        Args:
            scores: name of a task -> its score; at least one, and not necessarily of all tasks.
        """
        return mean(score.score for score in scores.values())

    def select_tasks(self, names: Sequence[str]) -> tuple[SuiteTask, ...]:
        """Return the tasks with some names, in the order of tables; without names, all tasks.

        Raises:
            UsageError: the suite has no task of a name.
        """
        if not names:
            return self.tasks
        known_names = [task.name for task in self.tasks]
        for name in names:
            if name not in known_names:
                hint = did_you_mean(name, known_names) or f"it has {', '.join(known_names)}"
                raise UsageError(f"{self.title} has no task {name!r}", hint)
        return tuple(task for task in self.tasks if task.name in names)


@dataclass(frozen=True)
class SuiteResult:
    """Results of a suite.

    Attributes:
        suite: the suite.
        scores: name of a task -> its score.
        without_model: names of tasks that no model was given for, or that the model cannot do.
        missing_files: name of a task whose files are missing -> what is missing.
        failures: name of a task that failed -> its error. A task that failed on its test file has
            a score.
    """

    suite: Suite
    scores: Mapping[str, TaskScore]
    without_model: Sequence[str] = ()
    missing_files: Mapping[str, str] = field(default_factory=dict)
    failures: Mapping[str, ZooError] = field(default_factory=dict)

    # Key of the metrics of ``to_result``.
    AVERAGE: ClassVar[str] = "average"

    @property
    def average(self) -> float:
        """The average over the tasks that were evaluated, in percent."""
        return self.suite.average({name: self.scores[name] for name in self.averaged})

    @property
    def averaged(self) -> list[str]:
        """Names of the tasks with a score that the average is over."""
        return list(self._averaged(self.scores)) or list(self.scores)

    @property
    def missing(self) -> list[str]:
        """Names of the averaged tasks that were not evaluated."""
        names = {*self.without_model, *self.missing_files, *self.failures}
        return list(self._averaged(names - self.scores.keys()))

    def _averaged(self, names: Collection[str]) -> Iterator[str]:
        for task in self.suite.tasks:
            if task.is_averaged and task.name in names:
                yield task.name

    def to_result(self) -> Result:
        """Return the result as ``zoo.evaluate`` does: the average, and the tasks as details."""
        tasks = {}
        for name, score in self.scores.items():
            tasks[name] = {**score.metrics, "score": score.score}
        details = {
            "suite": self.suite.name,
            "tasks": tasks,
            "missing": self.missing,
            "missing_files": dict(self.missing_files),
            "failures": {name: str(error) for name, error in self.failures.items()},
        }
        return Result({self.AVERAGE: self.average}, details)
