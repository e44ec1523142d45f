"""A pretrained model next to one with random weights, fine-tuned alike: ``--from-scratch``.

The directory has a folder of runs for each: ``pretrained`` and ``from-scratch``. Both have the same
settings, seeds and order of rows; only the initial weights differ.
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from zoo.errors import UsageError
from zoo.finetuning.runs import MODEL, SUMMARY, FineTuneRun, select_median_run
from zoo.io.json import encode_json, read_json_record
from zoo.io.output.atomic import atomic_directory, atomic_write
from zoo.io.output.full_disks import writing
from zoo.io.output.staging import discard_unused, remove_stale_staging
from zoo.metrics.paired_tests import paired_t_test
from zoo.training.config.finetune import FineTuneConfig
from zoo.training.config.overrides import ConfigDict
from zoo.training.config.schema import prefix_errors
from zoo.training.directory import set_aside
from zoo.training.logging.run_history import RunHistory
from zoo.training.run import require_same_settings
from zoo.training.seeds import resume_seeds, train_seeds
from zoo.training.state.location import initial_directory, resume_command, resumed_by
from zoo.training.state.progress import (
    COMPARISON,
    ComparisonRecord,
    is_finished,
    is_seed_directory,
)

LOG = logging.getLogger("zoo")
PRETRAINED = "pretrained"
FROM_SCRATCH = "from-scratch"
# Changes to the settings of the pretrained model's run. What keeps or renews a part of its weights
# has no meaning where all weights are new.
SCRATCH_SETTINGS: ConfigDict = {
    "random_weights": True,
    "freeze_layers": 0,
    "reinit_layers": 0,
    "init_from": {"new_modules": ()},
}
ARMS: dict[str, ConfigDict] = {PRETRAINED: {}, FROM_SCRATCH: SCRATCH_SETTINGS}
STEP = "step"  # Of the best evaluation.
TEST = "paired t-test over seeds"


@dataclass(frozen=True)
class Comparison:
    """The directory of a comparison that has ended."""

    path: Path
    runs: dict[str, list[Path]]  # Name of the folder -> its runs, one for each seed.

    @property
    def model(self) -> Path:
        """The final model of the pretrained runs, of the median one if there are several."""
        return self.path / PRETRAINED / MODEL


def describe_comparison(run: FineTuneRun) -> dict[str, str]:
    """Return the plan of a new comparison, and train nothing."""
    with prefix_errors(run.file):
        config, _ = _plan(run)
    plan = run.describe()
    plan["from scratch"] = "the same with random weights"
    changes = [name for name in ("freeze_layers", "reinit_layers") if getattr(config, name)]
    if changes:
        plan["from scratch"] += f", without {' and '.join(changes)}"
    return plan


def train_comparison(run: FineTuneRun, seeds: int | None) -> Comparison:
    """Train a pretrained model and one with random weights, each with all seeds.

    Raises:
        UsageError: the settings do not start from a checkpoint, or train an adapter.
    """
    with prefix_errors(run.file):
        config, settings = _plan(run)
    path = run.new_path(config)
    record = ComparisonRecord(settings=settings, seeds=seeds, working_directory=str(Path.cwd()))
    if run.dist.is_main_process:
        if run.force:
            set_aside(path)
        with atomic_directory(path) as staging:
            (staging / COMPARISON).write_bytes(encode_json(record))
    run.dist.barrier()
    try:
        return _train_arms(run, path, record)
    finally:
        if run.dist.is_main_process and not (path / PRETRAINED).exists():
            discard_unused(path, COMPARISON)  # No run has begun.


def resume_comparison(run: FineTuneRun, path: Path) -> Comparison:
    """Resume the unfinished runs of a comparison, and train those that have not begun."""
    record = read_json_record(path / COMPARISON, ComparisonRecord)
    if run.dist.is_main_process:
        folders = [path / name for name in ARMS]
        for folder in (path.absolute().parent, path, *folders):
            remove_stale_staging(folder)
    with initial_directory(path, record.working_directory) as initial_path:
        comparison = _train_arms(run, initial_path, record)
    runs = {}
    for name, arm_runs in comparison.runs.items():
        runs[name] = [path / arm_run.relative_to(initial_path) for arm_run in arm_runs]
    return Comparison(path, runs)


def resume_same_comparison(run: FineTuneRun, path: Path, seeds: int | None) -> Comparison:
    """Resume a comparison whose settings are given once more.

    Raises:
        UsageError: it began with other settings, or another number of seeds.
    """
    record = read_json_record(path / COMPARISON, ComparisonRecord)
    with prefix_errors(run.file):
        config, settings = _plan(run)
    if record.seeds != seeds:
        raise UsageError(
            f"{path} has {_count_runs(record.seeds)} of each model, not {_count_runs(seeds)}",
            "resume without changes, or begin another comparison",
        )
    require_same_settings(path, record.settings, settings, type(config))
    return resume_comparison(run, path)


def _count_runs(seeds: int | None) -> str:
    return "1 run" if seeds is None else f"runs of {seeds} seeds"


def _plan(run: FineTuneRun) -> tuple[FineTuneConfig, ConfigDict]:
    """Return configuration and settings of the pretrained runs; check that both can be trained."""
    if run.stages() is not None:
        raise UsageError(
            f"{run.given['task']} trains several models in stages, and --from-scratch compares one",
            "leave --from-scratch out, or choose another task",
        )
    config, settings = run.plan()
    assert isinstance(config, FineTuneConfig), "the configuration of a fine-tuning run"
    if config.init_from is None or config.random_weights:
        raise UsageError(
            "--from-scratch trains a new model next to a pretrained one, and none is named",
            "name a model in place of the family",
        )
    if config.adapter is not None:
        raise UsageError(
            "an adapter changes a pretrained model, and --from-scratch trains all weights",
            "leave --adapter or --from-scratch out",
        )
    return config, settings


def _train_arms(run: FineTuneRun, path: Path, record: ComparisonRecord) -> Comparison:
    runs: dict[str, list[Path]] = {}
    for name, changes in ARMS.items():
        directory = path / name
        if run.dist.is_main_process and not is_finished(directory):
            LOG.info("model %s of %s: %s", len(runs) + 1, len(ARMS), name)
        new_run = replace(
            run,
            settings=record.settings,
            overrides=changes,
            output=directory,
            file=None,
            force=False,
        )
        with resumed_by(resume_command(run.command, path), path, COMPARISON):
            runs[name] = _train_arm(new_run, directory, record.seeds)
    comparison = Comparison(path, runs)
    if run.dist.is_main_process:
        _write_results(comparison)
    run.dist.barrier()
    return comparison


def _train_arm(run: FineTuneRun, directory: Path, seeds: int | None) -> list[Path]:
    """Train, or resume, the runs of one model; return their directories."""
    resumed_run = replace(run, settings={}, overrides={}, output=None)
    if seeds is not None:
        if is_seed_directory(directory):
            return resume_seeds(resumed_run, directory)
        return train_seeds(run, seeds)
    if not run.has_begun(directory):
        run.start()
    elif not is_finished(directory):
        resumed_run.resume(directory)
    return [directory]


def _write_results(comparison: Comparison) -> None:
    """Write the summary and the report, and of several seeds the median models."""
    from zoo.finetuning.comparison_report import write_comparison_report

    histories = {}
    for name, runs in comparison.runs.items():
        if is_seed_directory(comparison.path / name):
            select_median_run(comparison.path / name, runs)
        histories[name] = [RunHistory.read(run) for run in runs]
    summary = summarize(comparison, histories)
    with writing(comparison.path / SUMMARY, remains=f"the runs in {comparison.path} remain"):
        atomic_write(comparison.path / SUMMARY, encode_json(summary))
    write_comparison_report(comparison.path, histories, summary)


def summarize(
    comparison: Comparison, histories: Mapping[str, Sequence[RunHistory]]
) -> dict[str, Any]:
    """Return loss and metrics of the best evaluations of all runs, and their differences.

    Args:
        comparison: the directory.
        histories: name of the folder -> logs of its runs, in the order of the seeds.
    """
    values: dict[str, dict[str, list[float]]] = {}
    for name, arm_histories in histories.items():
        for run, history in zip(comparison.runs[name], arm_histories, strict=True):
            best = history.best
            if best is None:
                raise UsageError(f"{run} stopped before its first evaluation", "resume the runs")
            numbers = {"loss": best["loss"], **best["metrics"], STEP: best["step"]}
            for metric, value in numbers.items():
                values.setdefault(metric, {}).setdefault(name, []).append(float(value))
    metrics: dict[str, Any] = {}
    for metric, arm_values in values.items():
        metrics[metric] = dict(arm_values)
        if metric != STEP:
            difference = _difference(arm_values[FROM_SCRATCH], arm_values[PRETRAINED])
            metrics[metric]["difference"] = difference
    first_arm = histories[PRETRAINED]
    content: dict[str, Any] = {
        "seeds": [history.config.get("seed", 0) for history in first_arm],
        "selected_by": first_arm[0].selecting_name,
        "metrics": metrics,
        "runs": {},
    }
    if len(first_arm) > 1:
        content["test"] = TEST
    for name, runs in comparison.runs.items():
        content["runs"][name] = [str(run.relative_to(comparison.path)) for run in runs]
    return content


def _difference(from_scratch: Sequence[float], pretrained: Sequence[float]) -> dict[str, float]:
    """Return the gain of the pretrained model; of several seeds with interval and p-value."""
    if len(pretrained) == 1:
        return {"mean": pretrained[0] - from_scratch[0]}
    return dict(paired_t_test(from_scratch, pretrained)._asdict())
