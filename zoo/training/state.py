"""Checkpoints of a run: all that is needed to go on as if nothing had happened.

A directory ``checkpoints/step-00000100`` holds the weights after 100 updates, the optimizer's
state and what is kept between steps, as safetensors, and ``state.json``. It is written beside
its place, flushed and renamed: whenever a process dies, what is there is whole.
"""

import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path

import msgspec
import torch

from zoo.checkpoint import FileDigest, Record, decode, encode
from zoo.errors import VerificationError
from zoo.hub.files import writing
from zoo.publish import publishing, sweep
from zoo.training.ranks import Ranks
from zoo.training.shards import save_shards

CHECKPOINTS, STATE, SHARDS = "checkpoints", "state.json", "shards"
FULL = "make room, and go on with `zoo pretrain --resume`"
_NAME = re.compile(r"step-(\d{8,})")
Tensors = dict[str, torch.Tensor]


class State(Record):
    """``state.json``.

    Attributes:
        step: how many updates were made.
        tokens: how many tokens they looked at.
        journal: how long the log was, in bytes.
        best: the lowest validation loss so far, and the step it was measured at.
        files: the other files of the directory.
    """

    step: int
    tokens: int = 0
    journal: int = 0
    best: tuple[float, int] | None = None
    files: dict[str, FileDigest] = msgspec.field(default_factory=dict)


def checkpoints(run: Path) -> dict[int, Path]:
    """Return the checkpoints of a run by step, the earliest first."""
    found = {}
    for path in (run / CHECKPOINTS).glob("step-*"):
        match = _NAME.fullmatch(path.name)
        if match and (path / STATE).is_file():
            found[int(match[1])] = path
    return dict(sorted(found.items()))


def save(run: Path, state: State, groups: Mapping[str, Tensors], ranks: Ranks) -> None:
    """Write a checkpoint; all processes must call it.

    Args:
        run: the run's directory.
        state: all but ``files``.
        groups: file stem -> tensors by name. Those that are split over processes go to the
            folder ``shards``, where each process writes its part.
        ranks: the processes.

    Raises:
        UsageError: the disk is full, or cannot be written; nothing is left of the attempt.
    """
    from zoo.convert.write import digest

    split = {stem: tensors for stem, tensors in groups.items() if is_split(tensors)}
    if not ranks.first:
        if split:
            with writing(run, FULL):
                save_shards(Path(ranks.agree("")), split)
            ranks.wait()
        return
    target = run / CHECKPOINTS / f"step-{state.step:08d}"
    with publishing(target, force=True) as staging:
        for stem, tensors in groups.items():
            if tensors and stem not in split:
                write_tensors(staging / f"{stem}.safetensors", tensors)
        if split:
            save_shards(Path(ranks.agree(str(staging / SHARDS))), split)
            ranks.wait()
        files = sorted(path for path in staging.rglob("*") if path.is_file())
        state.files = {str(path.relative_to(staging)): digest(path) for path in files}
        (staging / STATE).write_bytes(encode(state))


def write_tensors(path: Path, tensors: Tensors) -> None:
    """Write a safetensors file.

    Raises:
        OSError: the disk is full, or cannot be written.
    """
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    try:
        save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, path)
    except SafetensorError as error:  # which says in words what the system said
        code = re.search(r"os error (\d+)", str(error))
        if code is None:
            raise
        raise OSError(int(code[1]), os.strerror(int(code[1])), str(path)) from error


def is_split(tensors: Tensors) -> bool:
    """Whether tensors are split over processes."""
    return any(hasattr(tensor, "full_tensor") for tensor in tensors.values())


def load(path: Path) -> tuple[State, dict[str, Tensors]]:
    """Read a checkpoint, and check that it is as it was written.

    Returns:
        the state, and file stem -> tensors, without those in the folder ``shards``.

    Raises:
        VerificationError: a file was changed or is missing.
    """
    from safetensors.torch import load_file

    from zoo.convert.write import digest

    state = decode(path / STATE, State)
    for name, written in state.files.items():
        if not (path / name).is_file() or digest(path / name) != written:
            raise VerificationError(
                f"{path / name} is missing or was changed", "remove this checkpoint's directory"
            )
    stems = {Path(name).stem: path / name for name in state.files if "/" not in name}
    return state, {stem: load_file(file) for stem, file in stems.items()}


def tidy(run: Path) -> None:
    """Remove what was left by a process that was killed while it wrote or removed a checkpoint."""
    sweep(run / CHECKPOINTS / "step-*")
    for path in (run / CHECKPOINTS).glob("step-*"):
        if _NAME.fullmatch(path.name) and not (path / STATE).is_file():
            shutil.rmtree(path, ignore_errors=True)


def prune(run: Path, *, keep: int, best: int | None) -> None:
    """Remove all but the last checkpoints and the best one."""
    found = checkpoints(run)
    for step in list(found)[:-keep]:
        if step != best:
            (found[step] / STATE).unlink()  # first, so that what is half removed is no checkpoint
            shutil.rmtree(found[step], ignore_errors=True)
