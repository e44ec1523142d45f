"""Comparison of training runs: medians and ranges over seeds, as a table and a figure."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from zoo.errors import SourceError, UsageError
from zoo.training.config.overrides import config_diff
from zoo.training.logging.run_history import MANIFEST, SETTINGS, RunHistory
from zoo.training.state.location import resume_command
from zoo.training.state.progress import SEED_PREFIX, is_comparison

SEED = "seed"


@dataclass(frozen=True)
class RunGroup:
    """Runs that only differ in their seeds."""

    name: str  # Name of the runs' directory, or of the runs.
    # Settings that differ from the first group's, if it is of the same family.
    changes: Sequence[str]
    paths: Sequence[Path]  # Directories of the runs.
    histories: Sequence[RunHistory]  # Their settings and logs.

    @cached_property
    def summary(self) -> dict[str, tuple[float, float, float]]:
        """Loss and metrics of the last evaluation: name -> (median, lowest, highest)."""
        values_by_name: dict[str, list[float]] = {}
        for history in self.histories:
            evaluation = history.validation[-1]
            numbers = {"loss": evaluation["loss"]}
            terms = evaluation.get("losses", {})
            if len(terms) > 1:
                numbers.update(terms)
            numbers.update(evaluation["metrics"])
            numbers["seconds"] = history.seconds
            for name, number in numbers.items():
                values_by_name.setdefault(name, []).append(number)
        return {
            name: (statistics.median(values), min(values), max(values))
            for name, values in values_by_name.items()
        }

    @property
    def loss(self) -> str:
        """Name of what the loss measures: the objectives or the task, and the teacher.

        Losses with different names are different quantities, and are not to be compared.
        """
        name = self.task
        options = self.histories[0].config.get("task_args") or {}
        if options.get("loss"):
            name = f"{name}, {options['loss']}"
        if self.histories[0].manifest.get("kind") == "distill":
            name = f"{name}, distillation"
        return name

    @property
    def task(self) -> str:
        """Name of the task or objective; metrics of one name differ between tasks."""
        config = self.histories[0].config
        return str(config.get("task") or config.get("objective") or "loss")

    def to_dict(self) -> dict[str, Any]:
        """Return the runs and their metrics as values that JSON can represent."""
        return {
            "name": self.name,
            "runs": [str(path) for path in self.paths],
            "changes": list(self.changes),
            "loss": self.loss,
            "metrics": {
                name: {"median": middle, "lowest": low, "highest": high}
                for name, (middle, low, high) in self.summary.items()
            },
        }

    def curve(self) -> list[tuple[int, float, float, float]]:
        """Return the validation loss: step, median, lowest and highest, at steps of all runs."""
        losses: dict[int, list[float]] = {}
        for history in self.histories:
            for record in history.validation:
                losses.setdefault(record["step"], []).append(record["loss"])
        return [
            (step, statistics.median(group), min(group), max(group))
            for step, group in sorted(losses.items())
            if len(group) == len(self.histories)
        ]


def find_runs(paths: Sequence[Path]) -> list[Path]:
    """Return the directories of runs; a directory of several runs stands for all of them."""
    runs: list[Path] = []
    for path in paths:
        if _is_run(path):
            runs.append(path)
            continue
        inner_runs = sorted(child for child in path.glob("*/") if _is_run(child))
        if not inner_runs and is_comparison(path):
            inner_runs = sorted(child for child in path.glob("*/*/") if _is_run(child))
        if not inner_runs:
            raise SourceError(
                f"{path} is not a run",
                "give directories of `zoo pretrain`, `zoo finetune` or `zoo distill`",
            )
        runs.extend(inner_runs)
    return list(dict.fromkeys(runs))


def _is_run(path: Path) -> bool:
    return (path / SETTINGS).is_file() and (path / MANIFEST).is_file()


def group_runs(paths: Sequence[Path]) -> list[RunGroup]:
    """Group runs by their settings without the seed."""
    groups: list[tuple[dict[str, Any], list[tuple[Path, RunHistory]]]] = []
    for path in paths:
        history = RunHistory.read(path)
        if not history.validation:
            command = history.manifest.get("kind", "pretrain")
            raise UsageError(
                f"{path} has no evaluation yet", f"`{resume_command(command, path)}` resumes it"
            )
        settings = {name: value for name, value in history.config.items() if name != SEED}
        for group_settings, members in groups:
            if group_settings == settings:
                members.append((path, history))
                break
        else:
            groups.append((settings, [(path, history)]))
    first_settings, _ = groups[0]
    run_groups = []
    for settings, members in groups:
        runs = [path for path, _ in members]
        if all(path.name.startswith(SEED_PREFIX) for path in runs):
            name = runs[0].resolve().parent.name
        else:
            name = ", ".join(path.resolve().name for path in runs)
        changes: list[str] = []
        if settings["family"] == first_settings["family"]:
            changes = list(config_diff(first_settings, settings))
        run_groups.append(RunGroup(name, changes, runs, [history for _, history in members]))
    return run_groups
