"""Runs of another version that are resumed from a checkpoint in their middle."""

import json
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

from tools.same_results.context import Context, Results
from tools.same_results.records import run_record

HOME = "home"
# Patterns of the directories that the parts write their runs to, without teachers.
RUNS = ("pretrained/*", "finetuned/*", "adapters/*", "embeddings/*/*", "distilled/*")


def names_of_runs(runs: Path, patterns: Sequence[str] = RUNS) -> Iterator[str]:
    """Yield the names of the runs below a directory that can be cut after a checkpoint."""
    for pattern in patterns:
        for run in sorted(runs.glob(pattern)):
            first_run = first_stage(run)
            if first_run is None:
                continue
            checkpoints = first_run / "checkpoints"
            if checkpoints.is_dir() and len(list(checkpoints.iterdir())) > 1:
                yield run.relative_to(runs).as_posix()


def first_stage(run: Path) -> Path | None:
    """Return the run that was trained first: of several stages or seeds, the first one."""
    logs = sorted(log.parent for log in run.rglob("metrics.jsonl"))
    plan = run / "stages.json"
    if plan.exists():
        stages = json.loads(plan.read_text())["stages"]
        logs.sort(key=lambda folder: stages.index(folder.name))
    return logs[0] if logs else None


def finished(context: Context) -> Results:
    """Yield the records of the runs as they ended."""
    for name in names_of_runs(context.work):
        yield name, run_record(context.work / name, context.clean)


def collect(context: Context, runs: Path) -> Results:
    """Yield the records of runs of another version, resumed in a copy."""
    for name in names_of_runs(runs):
        run = context.work / "resumed" / name
        shutil.copytree(runs / name, run, symlinks=True)
        command = cut(run)
        words: tuple[object, ...] = (command, "--resume", run, "--offline", "--device", "cpu")
        if command == "distill":
            words += ("--no-score",)
        yield name, context.attempt(*words) or run_record(run, context.clean)


def last_change(folder: Path) -> float:
    """Return when the last file of a directory was written; copies keep this time."""
    return max(path.stat().st_mtime for path in folder.rglob("*") if path.is_file())


def cut(run: Path) -> str:
    """Remove what a run wrote after its first checkpoint; return the command that resumes it."""
    first_run = first_stage(run)
    assert first_run is not None
    checkpoints = sorted((first_run / "checkpoints").iterdir())
    cut_time = last_change(checkpoints[0])
    for path in run.iterdir():
        if run == first_run:
            break
        if path.is_symlink():
            path.unlink()
        elif path.is_dir() and path != first_run and last_change(path) > cut_time:
            shutil.rmtree(path)
    for checkpoint in checkpoints[1:]:
        shutil.rmtree(checkpoint)
    shutil.rmtree(first_run / "model")
    return str(json.loads((first_run / "run.json").read_text()).get("kind", "pretrain"))
