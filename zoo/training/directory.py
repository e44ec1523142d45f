"""The directory of a new run: its settings, manifest, initial weights, and lock."""

import contextlib
import logging
import platform
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import torch
from blake3 import blake3

from zoo.errors import UsageError
from zoo.io.digests.files import FileDigest
from zoo.io.digests.self_digest import NO_DIGEST, add_digest
from zoo.io.json import encode_json
from zoo.io.locks import lock_at_once
from zoo.io.output.atomic import atomic_directory
from zoo.io.output.overwrite import RUNS, check_target
from zoo.io.urls import public_words
from zoo.io.yaml import dump_yaml
from zoo.training.distributed.context import DistContext
from zoo.training.state.checkpoints import CheckpointMeta, save_checkpoint, settings_digest
from zoo.training.state.pretrained import InitRecord
from zoo.training.state.run_manifest import MANIFEST, SETTINGS, ParentRecord, RunManifest
from zoo.training.state.state_dict import saved_state_dict
from zoo.version import __version__

if TYPE_CHECKING:
    from zoo.training.base import RunSetup
    from zoo.training.loss_module import LossModule


NAME = ".lock"


@contextlib.contextmanager
def locked(run: Path) -> Iterator[None]:
    """Hold the lock of a run's directory; the system releases it if the process dies."""
    busy = UsageError(f"another process is at work in {run}", "let it end, or end it")
    lock = lock_at_once(run / NAME, busy)
    try:
        yield
    finally:
        lock.release()


LOG = logging.getLogger("zoo")


def check_set_aside(path: Path) -> None:
    """Check that ``--force`` may move a directory: zoo wrote it, and no process uses it."""
    parent = path.absolute().parent
    if path.is_symlink() or not any((path / name).is_file() for name in RUNS):
        check_target(path, force=True)
    elif any((parent / name).is_file() for name in RUNS):
        raise UsageError(f"{path} belongs to {parent}", "give another -o")
    elif Path.cwd().is_relative_to(path.resolve()):
        raise UsageError(f"{path} holds the working directory", "give another -o")
    for pattern in (MANIFEST, f"*/{MANIFEST}", f"*/*/{MANIFEST}"):
        for file in path.glob(pattern):
            with locked(file.parent):
                pass


def set_aside(path: Path) -> None:
    """Move a directory, if there is one, to ``NAME.old`` with the next free number."""
    # Deleting it would lose what may have taken days.
    if not path.exists():
        return
    check_set_aside(path)
    if not any(path.iterdir()):
        path.rmdir()
        return
    number = 1
    new_path = path.with_name(f"{path.name}.old-{number}")
    while new_path.exists():
        number += 1
        new_path = path.with_name(f"{path.name}.old-{number}")
    path.rename(new_path)
    LOG.warning("warning: --force moved the earlier %s to %s", path, new_path)


def write_directory(
    path: Path,
    setup: "RunSetup",
    dist: DistContext,
    loss_module: "LossModule",
    pretrained: InitRecord | None,
) -> None:
    """Create the directory of a new run, with the weights of a pretrained model."""
    files = run_files(setup)
    parameters = sum(p.numel() for p in loss_module.parameters() if p.requires_grad)
    manifest = run_manifest(setup, dist, files, parameters, pretrained)
    with new_directory(path, files, manifest) as staging:
        if pretrained is not None:  # A resume then needs only this directory.
            state = CheckpointMeta(step=0, settings=settings_digest(setup.config))
            weights = {"weights": saved_state_dict(loss_module.model, setup.config)}
            save_checkpoint(staging, state, weights, dist)


@contextlib.contextmanager
def new_directory(path: Path, files: Mapping[str, bytes], manifest: RunManifest) -> Iterator[Path]:
    """Yield the directory of a new run, which is being written."""
    with atomic_directory(path) as staging:
        for name, content in files.items():
            (staging / name).write_bytes(content)
        (staging / MANIFEST).write_bytes(add_digest(encode_json(manifest)))
        yield staging


def run_files(setup: "RunSetup") -> dict[str, bytes]:
    """Return name -> content of the files of a run that never change, besides the manifest."""
    text = dump_yaml(msgspec.to_builtins(setup.config))
    return {SETTINGS: text.encode(), **setup.run_files()}


def as_json_values(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings with the values that JSON gives back, such as lists for tuples."""
    values: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(settings))
    return values


def run_manifest(
    setup: "RunSetup",
    dist: DistContext,
    files: Mapping[str, bytes],
    parameters: int,
    pretrained: InitRecord | None,
    parent: ParentRecord | None = None,
) -> RunManifest:
    """Return the manifest of a new run, without its digest."""
    digests = {}
    for name, content in files.items():
        digests[name] = FileDigest(bytes=len(content), blake3=blake3(content).hexdigest())
    return RunManifest(
        zoo=__version__,
        kind=setup.command,
        command=["zoo", *public_words(sys.argv[1:])],
        working_directory=str(Path.cwd()),
        **setup.manifest_fields(),
        parameters=parameters,
        environment={
            "python": platform.python_version(),
            "torch": str(torch.__version__),
            "device": str(dist.device),
            "processes": str(dist.world_size),
        },
        settings=msgspec.to_builtins(setup.config),
        requested=None if setup.requested is None else as_json_values(setup.requested),
        init_from=pretrained,
        parent=parent,
        files=digests,
        digest=NO_DIGEST,
    )
