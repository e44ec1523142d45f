"""Several runs of the same settings with different seeds, in one directory."""

import logging
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from zoo.errors import UsageError
from zoo.io.json import encode_json, read_json_record
from zoo.io.output.atomic import atomic_directory
from zoo.io.output.staging import discard_unused, remove_stale_staging
from zoo.training.config.schema import prefix_errors
from zoo.training.directory import set_aside
from zoo.training.run import Run, require_same_settings
from zoo.training.state.location import initial_directory, resume_command, resumed_by
from zoo.training.state.progress import (
    SEED_PREFIX,
    SEEDS,
    SeedRecord,
    is_finished,
)

LOG = logging.getLogger("zoo")


def train_seeds(run: Run, count: int) -> list[Path]:
    """Train runs with successive seeds, in the directories ``seed-K`` of ``run.output``."""
    dist = run.dist
    with prefix_errors(run.file):
        config, settings = run.plan()
    path = run.new_path(config)
    record = SeedRecord(
        seeds=list(range(config.seed, config.seed + count)),
        settings=settings,
        working_directory=str(Path.cwd()),
    )
    if dist.is_main_process:
        if run.force:
            set_aside(path)
        with atomic_directory(path) as staging:
            (staging / SEEDS).write_bytes(encode_json(record))
    dist.barrier()
    try:
        return _train_all(run, path, record)
    finally:
        if dist.is_main_process and not any(path.glob(f"{SEED_PREFIX}*")):
            discard_unused(path, SEEDS)  # No run has begun.


def resume_seeds(run: Run, path: Path) -> list[Path]:
    """Resume the unfinished runs of a directory, and train those that have not begun."""
    record = read_json_record(path / SEEDS, SeedRecord)
    if run.dist.is_main_process:
        # A killed process may have left staging directories, also in finished runs.
        run_paths = [path / f"{SEED_PREFIX}{seed}" for seed in record.seeds]
        for folder in (path.absolute().parent, path, *run_paths):
            remove_stale_staging(folder)
    with initial_directory(path, record.working_directory) as seeds_path:
        directories = _train_all(run, seeds_path, record)
    return [path / directory.name for directory in directories]


def resume_same_seeds(run: Run, path: Path, count: int) -> list[Path]:
    """Resume the runs of a directory, whose settings and number of seeds are given once more.

    Raises:
        UsageError: they began with other settings.
    """
    record = read_json_record(path / SEEDS, SeedRecord)
    with prefix_errors(run.file):
        config, settings = run.plan()
    seeds = list(range(config.seed, config.seed + count))
    if record.seeds != seeds:
        raise UsageError(
            f"{path} has the seeds {_listed(record.seeds)}, not {_listed(seeds)}",
            "resume without changes, or begin other runs",
        )
    require_same_settings(path, record.settings, settings, type(config))
    return resume_seeds(run, path)


def _listed(seeds: Sequence[int]) -> str:
    return ", ".join(map(str, seeds))


def _train_all(run: Run, path: Path, record: SeedRecord) -> list[Path]:
    directories: list[Path] = []
    for seed in record.seeds:
        directory = path / f"{SEED_PREFIX}{seed}"
        if run.dist.is_main_process and not is_finished(directory):
            LOG.info("run %s of %s: seed %s", len(directories) + 1, len(record.seeds), seed)
        with resumed_by(resume_command(run.command, path), path, SEEDS):
            if not run.has_begun(directory):
                new_run = replace(
                    run,
                    settings=record.settings,
                    overrides={"seed": seed},
                    output=directory,
                    file=None,
                    force=False,
                )
                new_run.start()
            elif not is_finished(directory):
                replace(run, settings={}, overrides={}).resume(directory)
        directories.append(directory)
    return directories
