"""Several runs of the same settings with different seeds, in one directory."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from zoo.errors import Interrupted, UsageError
from zoo.io.json import JsonStruct, encode_json, read_json_record
from zoo.io.output.atomic import atomic_directory
from zoo.io.output.staging import discard_unused, remove_stale_staging
from zoo.training.compare import SEED_PREFIX
from zoo.training.config.schema import errors_naming
from zoo.training.distributed.context import DistContext
from zoo.training.entrypoints import PRETRAIN, RunKind, free_path
from zoo.training.state.final_model import is_finished
from zoo.training.state.location import resume_command, where_it_began

SEEDS = "seeds.json"


class SeedRecord(JsonStruct):
    """``seeds.json``: the runs of a directory."""

    seeds: list[int]  # seeds of the runs, in the order in which they are trained
    settings: dict[str, Any]  # settings that all runs share but for the seed
    working_directory: str = ""  # see ``RunManifest``


def is_seed_directory(path: Path) -> bool:
    """Return whether a directory was made by ``train_seeds``."""
    return (path / SEEDS).is_file()


def seed_directories(path: Path) -> list[Path]:
    """Return the directories of the runs of a directory that ``train_seeds`` made."""
    record = read_json_record(path / SEEDS, SeedRecord)
    return [path / f"{SEED_PREFIX}{seed}" for seed in record.seeds]


def train_seeds(
    values: Mapping[str, Any],
    overrides: Mapping[str, Any],
    output: Path | None,
    dist: DistContext,
    count: int,
    *,
    offline: bool = False,
    file: Path | None = None,
    kind: RunKind = PRETRAIN,
) -> list[Path]:
    """Train runs with successive seeds, in the directories ``seed-K`` of ``output``."""
    with errors_naming(file):
        config, settings = kind.plan(values, overrides, offline=offline)
    path = Path(dist.broadcast(str(output or free_path(config))))
    if path.exists():
        raise UsageError(f"{path} exists", f"`{resume_command(kind.command, path)}`, or another -o")
    record = SeedRecord(
        seeds=list(range(config.seed, config.seed + count)),
        settings=settings,
        working_directory=str(Path.cwd()),
    )
    dist.barrier()  # all processes have chosen their path before it is created
    if dist.is_main_process:
        with atomic_directory(path) as staging:
            (staging / SEEDS).write_bytes(encode_json(record))
    dist.barrier()
    try:
        return _train_all(path, record, dist, kind, offline=offline)
    finally:
        if dist.is_main_process and not any(path.glob(f"{SEED_PREFIX}*")):
            discard_unused(path, SEEDS)  # nothing has begun


def resume_seeds(
    path: Path, dist: DistContext, *, offline: bool = False, kind: RunKind = PRETRAIN
) -> list[Path]:
    """Resume the unfinished runs of a directory, and train those that have not begun."""
    record = read_json_record(path / SEEDS, SeedRecord)
    if dist.is_main_process:  # of a process that was killed, also in finished runs
        each = (path / f"{SEED_PREFIX}{seed}" for seed in record.seeds)
        for folder in (path.absolute().parent, path, *each):
            remove_stale_staging(folder)
    with where_it_began(path, record.working_directory) as place:
        runs = _train_all(place, record, dist, kind, offline=offline)
    return [path / run.name for run in runs]


def _train_all(
    path: Path, record: SeedRecord, dist: DistContext, kind: RunKind, *, offline: bool
) -> list[Path]:
    runs = []
    for seed in record.seeds:
        run = path / f"{SEED_PREFIX}{seed}"
        try:
            if not kind.has_begun(run):
                kind.train(record.settings, {"seed": seed}, run, dist, offline=offline)
            elif not is_finished(run):
                kind.resume(run, {}, {}, dist, offline=offline)
        except Interrupted as error:
            hint = f"{resume_command(kind.command, path)} resumes it"
            raise Interrupted(error.what, hint) from error
        runs.append(run)
    return runs
