"""Fine-tuning runs, and the median of several seeds."""

import shutil
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from zoo.data.readers.glue import PREFIX
from zoo.errors import UsageError
from zoo.finetuning.config import finetune_config
from zoo.finetuning.setup import finetune_setup
from zoo.finetuning.stages import TaskStages
from zoo.io.json import encode_json
from zoo.io.output.atomic import atomic_directory, atomic_write
from zoo.io.output.full_disks import writing
from zoo.overrides import override
from zoo.plugins.tasks import training_task
from zoo.training.config.overrides import ConfigDict
from zoo.training.logging.run_history import RunHistory
from zoo.training.multi_stage import MultiStageRun, StagesRecord

MODEL = "model"
SUMMARY = "summary.json"


class FineTuneRun(MultiStageRun):
    """A run of a task on labelled data, or one for each stage of the task."""

    command: ClassVar[str] = "finetune"
    build_config = staticmethod(finetune_config)
    build_setup = staticmethod(finetune_setup)

    @override
    def stages(self) -> StagesRecord | None:
        settings = self.given
        name = settings.get("task")
        if not isinstance(name, str) or name.startswith(PREFIX):
            return None
        stages = training_task(name).stages
        if stages is None or stages.is_single(settings):
            return None
        settings = stages.resolve(settings)
        return StagesRecord(
            stages=stages.names(settings), settings=settings, working_directory=str(Path.cwd())
        )

    @override
    def stage_settings(self, path: Path | None, record: StagesRecord, number: int) -> ConfigDict:
        stages: TaskStages = training_task(record.settings["task"]).stages
        return stages.settings(path, record.settings, record.stages[number])

    @override
    def stage_files(self, path: Path, record: StagesRecord, number: int) -> ConfigDict:
        stages: TaskStages = training_task(record.settings["task"]).stages
        return stages.files(path, record.stages[number])

    @override
    def before_stage(self, path: Path, record: StagesRecord, number: int) -> None:
        if self.dist.is_main_process:
            stages: TaskStages = training_task(record.settings["task"]).stages
            stages.prepare(path, record.settings, record.stages[number], str(self.dist.device))
        self.dist.barrier()


def select_median_run(path: Path, runs: Sequence[Path]) -> Path:
    """Copy the model of the run with the median best evaluation, and write all results.

    Of an even number of runs, the worse of the two in the middle is copied.
    """
    histories = {run: RunHistory.read(FineTuneRun.last_stage(run)) for run in runs}
    run_values = {}
    metric_values: dict[str, list[float]] = {}
    for run, history in histories.items():
        best = history.best
        if best is None:
            raise UsageError(f"{run} stopped before its first evaluation", "resume the runs")
        values = {"loss": best["loss"], **best["metrics"], "step": best["step"]}
        run_values[str(run.relative_to(path))] = values
        for name, value in values.items():
            metric_values.setdefault(name, []).append(value)
    ranked = sorted(runs, key=lambda run: histories[run].rank(histories[run].best or {}))
    median_run = ranked[len(ranked) // 2]
    summary = {name: median_and_range(values) for name, values in metric_values.items()}
    content = {
        "median_run": str(median_run.relative_to(path)),
        "metrics": summary,
        "runs": run_values,
    }
    with writing(path / SUMMARY, remains=f"the runs in {path} remain"):
        atomic_write(path / SUMMARY, encode_json(content))
    _copy_model(median_run / MODEL, path / MODEL)
    return path / MODEL


def _copy_model(source: Path, target: Path) -> None:
    """Copy the model of a run; without room, the runs remain."""
    try:
        with atomic_directory(target, force=True, in_run=True) as staging:
            shutil.copytree(source, staging, copy_function=shutil.copyfile, dirs_exist_ok=True)
    except UsageError as error:
        if not isinstance(error.__cause__, OSError):
            raise
        hint = f"the runs next to it remain; make room, and resume {target.parent}"
        raise UsageError(error.what, hint) from error.__cause__


def median_and_range(values: Sequence[float]) -> dict[str, float]:
    """Return the median and the range of values."""
    return {"median": statistics.median(values), "lowest": min(values), "highest": max(values)}
