"""MTEB as a suite of ``zoo eval``: tasks that the package ``mteb`` downloads and measures."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from zoo.errors import SourceError, UsageError
from zoo.inference.task_checks import require_head
from zoo.overrides import override
from zoo.suites.base import Suite, SuiteModel, SuiteTask, TaskScore

if TYPE_CHECKING:
    from types import ModuleType

EMBED = "embed"  # Task of heads.
FUNCTIONS = ("get_task", "evaluate")  # Functions of mteb that are called.


@dataclass(frozen=True, kw_only=True)
class MtebTask(SuiteTask):
    """A task of MTEB. Its metric is the task's main score, which the average is over as well."""

    @override
    def find_files(self, data: Path) -> Sequence[Path]:
        return ()

    @override
    def evaluate(self, model: SuiteModel, files: Sequence[Path]) -> TaskScore:
        from zoo.api import Model
        from zoo.contrib.mteb import Encoder

        if model.limit is not None:
            raise UsageError("mteb evaluates complete tasks", "leave --limit out")
        require_head(model.checkpoint, EMBED)
        mteb = _import_mteb()
        task = _find_task(mteb, self.name)
        encoder = Encoder(Model(model.checkpoint, model.session))
        try:
            # Without its cache, which would return results of an earlier state of the model.
            result = mteb.evaluate(encoder, task, cache=None, raise_error=True)
        except OSError as error:  # Those of requests and of the Hub's client are, too.
            raise SourceError(
                f"mteb cannot load {self.name}: {error}", "connect to the internet once"
            ) from error
        (task_result,) = result.task_results
        score = float(task_result.get_score())
        return TaskScore.from_metrics({task.metadata.main_score: score})


@dataclass(frozen=True)
class MtebSuite(Suite):
    """The tasks of MTEB that the user names."""

    @override
    def select_tasks(self, names: Sequence[str]) -> tuple[SuiteTask, ...]:
        mteb = _import_mteb()
        if not names:
            raise UsageError(
                "MTEB has hundreds of tasks", "name some, such as --tasks STSBenchmark,SciFact"
            )
        tasks = []
        for name in dict.fromkeys(names):
            _find_task(mteb, name)
            tasks.append(MtebTask(name=name, title=name))
        return tuple(tasks)


def _import_mteb() -> "ModuleType":
    try:
        import mteb
    except ImportError as error:
        raise UsageError(
            f"--suite mteb takes the package mteb, which cannot be imported: {error}",
            "pip install mteb",
        ) from error
    module: ModuleType = mteb
    # Versions before 2 have no ``evaluate``, and a folder called mteb has nothing.
    for name in FUNCTIONS:
        if not hasattr(module, name):
            place = module.__file__ or next(iter(module.__path__))
            raise UsageError(
                f"--suite mteb takes version 2 of the package mteb, and {place} has no {name}",
                "pip install -U mteb",
            )
    return module


def _find_task(mteb: "ModuleType", name: str) -> Any:
    """Return the task of a name."""
    try:
        return mteb.get_task(name)
    except KeyError as error:
        # The message of mteb ends with its suggestion.
        _, _, suggestion = str(error.args[0]).partition("Did you mean: ")
        nearest = suggestion.strip("'?")
        hint = f"did you mean {nearest}?" if nearest else "mteb.get_tasks() lists them"
        raise UsageError(f"MTEB has no task {name!r}", hint) from error


SUITE = MtebSuite(
    name="mteb",
    title="MTEB",
    tasks=(),
    source="Muennighoff et al. 2023, arXiv:2210.07316",
    reads_folder=False,
)
