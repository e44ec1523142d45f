"""The checkpoint that a run resumes from: the last one that is intact."""

import logging
from dataclasses import dataclass
from pathlib import Path

from zoo.errors import SourceError, VerificationError
from zoo.training.config.run_config import RunConfig
from zoo.training.distributed.context import DistContext
from zoo.training.logging.jsonl import METRICS_FILE as JOURNAL
from zoo.training.state.checkpoints import (
    CheckpointMeta,
    accepted_digests,
    check_checkpoint,
    check_metrics_file,
    read_meta,
)
from zoo.training.state.progress import CHECKPOINTS, list_checkpoints

LOG = logging.getLogger("zoo")
DAMAGED = ".damaged"  # The suffix of directories with damaged checkpoints.


@dataclass(frozen=True)
class SavedCheckpoint:
    """A checkpoint of a run whose files were compared with their digests."""

    path: Path
    meta: CheckpointMeta  # Contents of ``state.json``.


def last_intact_checkpoint(
    run: Path, config: RunConfig, dist: DistContext, *, set_aside: bool = True
) -> SavedCheckpoint | None:
    """Return the last intact checkpoint of a run, or ``None`` if it has no checkpoint yet.

    Damaged checkpoints after the one that is returned are reported as warnings and, with
    ``set_aside``, renamed. They are not removed.
    """
    # A run that resumes from an earlier checkpoint ends at the same bytes. The first process reads
    # all files and decides for all processes.
    name = ""
    if dist.is_main_process:
        name = _choose(run, config, set_aside=set_aside)
    name = dist.broadcast(name)
    if not name:
        return None
    path = run / CHECKPOINTS / name
    return SavedCheckpoint(path, _read(path, config))


def check(run: Path, path: Path, config: RunConfig) -> str:
    """Check a checkpoint: its record, the digests of its files, and the log up to its step."""
    state = _read(path, config)
    detail = check_checkpoint(path, state)
    check_metrics_file(run / JOURNAL, state)
    return detail


def _read(path: Path, config: RunConfig) -> CheckpointMeta:
    return read_meta(path, steps=config.max_steps, settings=accepted_digests(config))


def _choose(run: Path, config: RunConfig, *, set_aside: bool) -> str:
    """Return the directory name of the last intact checkpoint, or an empty string."""
    damaged: dict[Path, str] = {}
    for path in reversed(list_checkpoints(run).values()):
        try:
            check(run, path, config)
        except (VerificationError, SourceError) as error:
            damaged[path] = error.what
            continue
        for damaged_path, reason in damaged.items():
            if set_aside:
                _set_aside(damaged_path, reason, path.name)
            else:
                LOG.warning(
                    "warning: %s is damaged; continuing from %s (%s)",
                    damaged_path,
                    path.name,
                    reason,
                )
        return path.name
    if damaged:
        reason = next(iter(damaged.values()))
        subject = "is not"
        if len(damaged) > 1:
            subject = f"none of its {len(damaged)} checkpoints is"
        raise VerificationError(
            f"{run} cannot be resumed, {subject} intact: {reason}",
            "restore the files from a copy, or begin another run",
        )
    return ""


def _set_aside(path: Path, reason: str, resumed: str) -> None:
    """Rename a damaged checkpoint, so that the run can write its step again, and log a warning."""
    number = 1
    new = path.with_name(f"{path.name}{DAMAGED}")
    while new.exists():
        number += 1
        new = path.with_name(f"{path.name}{DAMAGED}-{number}")
    path.rename(new)
    LOG.warning(
        "warning: %s is damaged and was renamed to %s; resuming from %s (%s)",
        path,
        new.name,
        resumed,
        reason,
    )
