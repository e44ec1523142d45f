"""How far a run is: its checkpoints, its final models, and the runs of seeds and stages."""

# What describes runs reads these files without importing torch.

import os
import re
from pathlib import Path
from typing import Any, Literal

from zoo.io.digests.files import FileDigest
from zoo.io.digests.self_digest import read_record
from zoo.io.json import JsonStruct, read_json_record
from zoo.io.limits import MAX_STATE_BYTES

CHECKPOINTS = "checkpoints"
FINAL = "final.json"
SEEDS = "seeds.json"
STAGES = "stages.json"
COMPARISON = "comparison.json"
SEED_PREFIX = "seed-"  # of the directories of the runs
RESTORE_HINT = "restore it from a copy"
_CHECKPOINT_NAME = re.compile(r"step-(\d{8,})")


def list_checkpoints(run: Path) -> dict[int, Path]:
    """Return step -> directory of all checkpoints of a run in order, damaged ones included."""
    paths = {}
    for path in (run / CHECKPOINTS).glob("step-*"):
        match = _CHECKPOINT_NAME.fullmatch(path.name)
        if match and path.is_dir():
            paths[int(match[1])] = path
    return dict(sorted(paths.items()))


def checkpoint_path(run: Path, step: int) -> Path:
    """Return the directory of the checkpoint of a step."""
    return run / CHECKPOINTS / f"step-{step:08d}"


class FinalRecord(JsonStruct):
    """``final.json``: the final models of a run, written when training ends."""

    # Name of a model's directory -> digests of its files, without the manifest.
    models: dict[str, dict[str, FileDigest]]
    digest: str  # BLAKE3 of this file, see ``zoo.io.digests.self_digest``.
    # Why the run stopped before its last step, and where; it can be resumed.
    stopped_by: Literal["max_time"] | None = None
    step: int | None = None


def is_finished(run: Path) -> bool:
    """Return whether a run has its final model, and the record that it writes after all models."""
    return (run / "model").is_dir() and os.path.lexists(run / FINAL) and not was_stopped(run)


def was_stopped(run: Path) -> bool:
    """Return whether the final model of a run is from a step before the last."""
    return os.path.lexists(run / FINAL) and read_final_record(run).stopped_by is not None


def read_final_record(run: Path) -> FinalRecord:
    """Return ``final.json`` of a run."""
    return read_record(run / FINAL, FinalRecord, hint=RESTORE_HINT, limit=MAX_STATE_BYTES)


class SeedRecord(JsonStruct):
    """``seeds.json``: the runs of a directory."""

    seeds: list[int]  # Seeds of the runs, in the order in which they are trained.
    settings: dict[str, Any]  # Settings that all runs share but for the seed.
    working_directory: str = ""  # See ``RunManifest``.


class ComparisonRecord(JsonStruct):
    """``comparison.json``: a pretrained model next to one with random weights, in a directory."""

    settings: dict[str, Any]  # Settings of the runs of the pretrained model.
    seeds: int | None = None  # Number of seeds; ``None`` for one run of each model.
    working_directory: str = ""  # See ``RunManifest``.


def is_comparison(path: Path) -> bool:
    """Return whether a directory was made by ``zoo finetune --from-scratch``."""
    return (path / COMPARISON).is_file()


def is_seed_directory(path: Path) -> bool:
    """Return whether a directory was made by ``train_seeds``."""
    return (path / SEEDS).is_file()


def seed_directories(path: Path) -> list[Path]:
    """Return the directories of the runs of a directory that ``train_seeds`` made."""
    record = read_json_record(path / SEEDS, SeedRecord)
    return [path / f"{SEED_PREFIX}{seed}" for seed in record.seeds]
