"""Fine-tuning runs: their kind, and several seeds of which the median is kept."""

import shutil
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from zoo.finetuning.config import build_config
from zoo.finetuning.setup import build_setup
from zoo.io.json import encode_json
from zoo.io.output.atomic import atomic_directory, atomic_write
from zoo.training.entrypoints import RunKind
from zoo.training.logging.run_history import RunHistory

FINETUNE = RunKind("finetune", build_config, build_setup)
MODEL, SUMMARY = "model", "summary.json"


def keep_median(path: Path, runs: Sequence[Path]) -> Path:
    """Copy the model of the run with the median result, and write the results of all.

    The result of a run is its best evaluation; of an even number of runs, the worse of the two in
    the middle is copied.
    """
    histories = {run: RunHistory.read(run) for run in runs}
    ranked = sorted(runs, key=lambda run: histories[run].rank(histories[run].best or {}))
    middle = ranked[len(ranked) // 2]
    names_of = {run: str(run.relative_to(path)) for run in runs}
    values = {names_of[run]: _values(h.best or {}) for run, h in histories.items()}
    names = list(dict.fromkeys(name for numbers in values.values() for name in numbers))
    summary = {
        name: spread([numbers[name] for numbers in values.values() if name in numbers])
        for name in names
    }
    content = {"median_run": names_of[middle], "metrics": summary, "runs": values}
    atomic_write(path / SUMMARY, encode_json(content))
    with atomic_directory(path / MODEL, force=True, in_run=True) as staging:
        for file in sorted((middle / MODEL).iterdir()):
            shutil.copyfile(file, staging / file.name)
    return path / MODEL


def _values(evaluation: Mapping[str, Any]) -> dict[str, float]:
    return {"loss": evaluation["loss"], **evaluation["metrics"], "step": evaluation["step"]}


def spread(values: Sequence[float]) -> dict[str, float]:
    """Return the median and the range of values."""
    return {"median": statistics.median(values), "lowest": min(values), "highest": max(values)}
