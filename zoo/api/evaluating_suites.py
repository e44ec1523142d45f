"""``zoo.evaluate`` with a suite: the tasks of a benchmark, each with its model or all with one."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from zoo.api import Model
from zoo.api.arguments import as_path
from zoo.api.evaluation_arguments import EvaluationArguments
from zoo.errors import SourceError, UsageError
from zoo.io.paths import as_paths
from zoo.io.remote.cache import fetch
from zoo.plugins.suites import find_suite
from zoo.plugins.tasks import public_tasks

if TYPE_CHECKING:
    from zoo.checkpoint import Checkpoint
    from zoo.evaluation.base import Result
    from zoo.inference import Need, Session
    from zoo.suites.base import Suite, SuiteResult

NO_DATA = Path()  # Stands for the folder of a suite that reads none.


class SuiteCall:
    """A call of ``evaluate`` with a suite.

    Args:
        arguments: the arguments.
        suite: name of the suite.
    """

    def __init__(self, arguments: EvaluationArguments, suite: str) -> None:
        self._model = arguments.model
        self._compute = dict(arguments.compute)
        self._source = dict(arguments.source)
        self._record = arguments.record
        self._limit = arguments.options.get("limit")
        if arguments.task is not None:
            raise UsageError("--task and --suite exclude each other", "give one")
        self._suite: Suite = find_suite(suite)
        self._tasks = split_names(arguments.tasks)
        self._suite.select_tasks(self._tasks)
        self.reference = arguments.reference
        self._require_no_options(arguments.options)
        for name in ("report", "excel_safe"):
            if getattr(arguments, name):
                flag = name.replace("_", "-")
                raise UsageError(f"{suite} has several tasks", f"leave --{flag} out")
        self._force = arguments.force
        self._predictions = as_path(arguments.predictions, "output")
        if Path(self.reference).is_dir():
            for name in ("revision", "lock"):
                if self._source[name] is not None:
                    raise UsageError(
                        f"--suite {suite} evaluates directories", f"leave --{name} out"
                    )
        self._data = self._data_folder(as_paths(arguments.eval))
        if self._predictions is not None:
            self._check_predictions(self._predictions)

    def _check_predictions(self, folder: Path) -> None:
        """Check that the files of the leaderboard can be written, before anything is computed."""
        from zoo.io.output.overwrite import check_file

        names: list[str] = []
        for task in self._suite.select_tasks(self._tasks):
            names += task.submission_names
        if not names:
            raise UsageError(
                f"{self._suite.title} has no leaderboard with test files", "leave --predictions out"
            )
        if folder.exists() and not folder.is_dir():
            raise UsageError(
                f"{folder} is not a folder", "with --suite, --predictions names a folder"
            )
        for name in names:
            check_file(folder / name, force=self._force)

    def _require_no_options(self, options: Mapping[str, Any]) -> None:
        """Check that no option of a task is given."""
        for spec in public_tasks("evaluate"):
            for option in spec.eval_options:
                if options.get(option.name) not in (None, ()):
                    flag = option.flags
                    raise UsageError(
                        f"{self._suite.name} has no option {flag}", f"leave {flag} out"
                    )

    def _data_folder(self, paths: Sequence[str]) -> Path:
        """Return the folder of the suite's files."""
        if not self._suite.reads_folder:
            if paths:
                raise UsageError(
                    f"--suite {self._suite.name} reads no folder, and {paths[0]} is given",
                    "leave it out; names of several tasks are separated by commas",
                )
            return NO_DATA
        if len(paths) != 1:
            raise UsageError(
                f"--suite {self._suite.name} reads one directory, and {len(paths)} are given",
                f"name the directory of {self._suite.title} after --suite, or by --eval",
            )
        folder = fetch(paths[0])
        if not folder.is_dir():
            raise SourceError(
                f"{folder} is not a directory", f"name the directory of {self._suite.title}"
            )
        return folder

    def measure(self) -> "SuiteResult":
        """Evaluate the models, and record the results."""
        from zoo.suites.evaluate import evaluate_suite, find_models

        return evaluate_suite(
            self._suite,
            find_models(self._suite, self._suite.select_tasks(self._tasks), self.reference),
            self._data,
            self.open_model,
            tasks=self._tasks,
            limit=self._limit,
            record=self._record,
            on_predictions=None if self._predictions is None else self._write_predictions,
        )

    def _write_predictions(self, name: str, content: str) -> None:
        """Write a file of the leaderboard."""
        from zoo.io.output.atomic import atomic_write
        from zoo.io.output.full_disks import writing

        assert self._predictions is not None, "it is set where files are written"
        path = self._predictions / name
        with writing(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            atomic_write(path, content.encode())

    def open_model(self, reference: str) -> "tuple[Checkpoint, Session]":
        """Return a checkpoint and its session."""
        if isinstance(self._model, Model) and reference == self.reference:
            return self._model.checkpoint, self._model.session
        return open_suite_model(reference, self._compute, self._source)

    def to_dict(self, result: "Result") -> dict[str, Any]:
        """Return what ``zoo eval --json`` prints."""
        return {**result.details, **result.metrics}


def open_suite_model(
    reference: str, compute: Mapping[str, Any], source: Mapping[str, Any]
) -> "tuple[Checkpoint, Session]":
    """Return a checkpoint and its session.

    Args:
        reference: the model.
        compute: see ``EvaluationArguments``.
        source: see ``EvaluationArguments``.
    """
    from zoo.conversion.cache import resolve_adapted
    from zoo.exporting.session import open_session
    from zoo.suites.base import TEXT_TO_TEXT

    options = dict(source)
    checkpoint = resolve_adapted(reference, options.pop("adapter"), **options)
    needs: tuple[Need, ...] = ()
    if TEXT_TO_TEXT in checkpoint.head.tasks:
        needs = ("generation",)
    session = open_session(checkpoint, **compute, fastest=True, needs=needs)
    return checkpoint, session


def split_names(names: str | Sequence[str]) -> list[str]:
    """Return the names of tasks in texts with commas."""
    texts = [names] if isinstance(names, str) else names
    separate_names = []
    for text in texts:
        for name in text.split(","):
            if name.strip():
                separate_names.append(name.strip())
    return separate_names
