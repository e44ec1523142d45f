"""Checkpoints of a run, from which it resumes bit for bit."""

import contextlib
import os
import re
import shutil
import warnings
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import msgspec
import torch
from blake3 import blake3

from zoo.errors import VerificationError
from zoo.hub.files import map_os_errors
from zoo.io.digests.files import FileDigest, check_files, check_strays, compute_blake3
from zoo.io.digests.self_digest import NO_DIGEST, add_digest, read_record
from zoo.io.json import JsonStruct, encode_json
from zoo.io.limits import MAX_STATE_BYTES
from zoo.io.output.atomic import atomic_directory
from zoo.io.output.staging import discard, remove_stale_staging
from zoo.io.untrusted import parsing
from zoo.training.distributed.context import DistContext
from zoo.training.state.progress import CHECKPOINTS, RESTORE_HINT, checkpoint_path, list_checkpoints

if TYPE_CHECKING:
    from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageWriter

STATE = "state.json"
OPTIMIZER = "optimizer"  # The stem of the state's file, or the group of its sharded tensors.
SHARDS = "shards"
OPTIMIZER_SHARDS = "optimizer-shards"
# Numbers of the files of a process with sharded tensors: the model's, and the optimizer's.
MODEL_FILE = 1
OPTIMIZER_FILE = 2
# Settings that were added since runs could be resumed, the newest first, and their defaults. A
# checkpoint of an earlier version has a digest without them.
ADDED_SETTINGS: tuple[tuple[tuple[str, ...], Any], ...] = (
    (("random_weights",), False),
    (("strip_accents",), None),
    (("lowercase",), False),
    (("metrics",), ()),
    (("data", "stream"), {"lanes": 8, "shuffle_buffer": 256, "eval_documents": 0}),
    (("data", "streaming"), False),
    (("fsdp_config",), None),
    (("async_save",), True),
    (("adapter",), None),
    (("keep_optimizer",), False),
    (("data", "skip_invalid"), False),
)
DISK_FULL_HINT = "make room, and resume with --resume"
REMOVE_HINT = "remove this checkpoint's directory"
Tensors = dict[str, torch.Tensor]


class CheckpointMeta(JsonStruct):
    """``state.json``."""

    step: int  # Number of optimizer steps done.
    tokens: int = 0  # Number of tokens trained on.
    metrics_position: int = 0  # Length of ``metrics.jsonl`` in bytes.
    metrics_digest: str = ""  # BLAKE3 of ``metrics.jsonl`` up to that length.
    # Best value of an evaluation so far, by default the lowest loss, and its step.
    best: tuple[float, int] | None = None
    settings: str = ""  # Digest of the run's configuration, see ``settings_digest``.
    # Whether the optimizer's state was ``saved``; ``dropped`` when the run ended, or ``reset`` to
    # begin with a new one.
    optimizer: Literal["saved", "dropped", "reset"] = "saved"
    optimizer_began: int = 0  # Step at which that state began: 0 unless it was reset.
    # Digests of the other files of the directory.
    files: dict[str, FileDigest] = msgspec.field(default_factory=dict)
    # BLAKE3 of this file, see ``zoo.io.digests.self_digest``. This and the other digests are empty
    # in checkpoints of earlier versions.
    digest: str = ""


def settings_digest(config: msgspec.Struct) -> str:
    """Return the BLAKE3 digest of a run's configuration."""
    return accepted_digests(config)[0]


def accepted_digests(config: msgspec.Struct) -> list[str]:
    """Return the digests that checkpoints of a configuration have, of this and earlier versions."""
    settings: dict[str, Any] = msgspec.to_builtins(config)
    digests = [_digest(settings)]
    for (*tables, name), default in ADDED_SETTINGS:
        table = settings
        for key in tables:
            table = table.get(key) or {}
        if name in table:
            if table.pop(name) != default:
                break
            digests.append(_digest(settings))
    return digests


def _digest(settings: Mapping[str, Any]) -> str:
    return blake3(msgspec.json.encode(settings, order="sorted")).hexdigest()


def save_checkpoint(
    run: Path, state: CheckpointMeta, groups: Mapping[str, Tensors], dist: DistContext
) -> None:
    """Write a checkpoint; all processes must call it.

    A directory ``checkpoints/step-00000100`` holds the weights after 100 steps, the optimizer's
    state and recurrent states as safetensors, and ``state.json`` with the digests of all files,
    itself included.

    Args:
        run: directory of the run.
        state: contents of ``state.json``; this call adds the digests.
        groups: file stem -> tensors by name. Sharded tensors go to the directory ``shards``, where
            each process writes its part.
        dist: the processes of the run.
    """
    # A checkpoint is written to a staging directory, flushed and renamed, so that a killed process
    # leaves no partial checkpoint. It is also renamed before it is removed, so that a directory
    # without ``state.json`` is a damaged checkpoint and not a partial removal.
    sharded_groups = {stem: tensors for stem, tensors in groups.items() if is_sharded(tensors)}
    if not dist.is_main_process:
        if sharded_groups:
            with map_os_errors(run, DISK_FULL_HINT):
                save_shards(Path(dist.broadcast("")), sharded_groups)
        return
    with atomic_directory(checkpoint_path(run, state.step), force=True, managed=True) as staging:
        if sharded_groups:
            save_shards(Path(dist.broadcast(str(staging))), sharded_groups)
        unsharded_groups = {}
        for stem, tensors in groups.items():
            if stem not in sharded_groups:
                unsharded_groups[stem] = tensors
        write_main_files(staging, state, unsharded_groups)


def write_main_files(folder: Path, state: CheckpointMeta, groups: Mapping[str, Tensors]) -> None:
    """Write what the main process writes: after the shards, other tensors and ``state.json``.

    Args:
        folder: folder of the checkpoint, with the shards of all processes.
        state: contents of ``state.json``; this call adds the digests.
        groups: file stem -> tensors by name, none of them sharded.
    """
    from zoo.io.digests.files import hash_folder

    for stem, tensors in groups.items():
        if tensors:
            write_tensors(folder / f"{stem}.safetensors", tensors)
    _separate_optimizer_shards(folder)
    state.files = hash_folder(folder)
    state.digest = NO_DIGEST
    (folder / STATE).write_bytes(add_digest(encode_json(state)))


def write_tensors(path: Path, tensors: Tensors) -> None:
    """Write a safetensors file."""
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    try:
        save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, path)
    except SafetensorError as error:  # Only its message has the system's error code.
        code = re.search(r"os error (\d+)", str(error))
        if code is None:
            raise
        raise OSError(int(code[1]), os.strerror(int(code[1])), str(path)) from error


def is_sharded(tensors: Tensors) -> bool:
    """Return whether some tensors are DTensors."""
    return any(hasattr(tensor, "full_tensor") for tensor in tensors.values())


def read_meta(path: Path, *, steps: int, settings: Collection[str]) -> CheckpointMeta:
    """Read ``state.json`` of a checkpoint, and check that it belongs to the run."""
    file = path / STATE
    if not file.is_file():
        raise VerificationError(f"{file} is missing", REMOVE_HINT)
    state = read_record(file, CheckpointMeta, hint=REMOVE_HINT, limit=MAX_STATE_BYTES)
    name = f"step-{state.step:08d}"
    if name != path.name:
        raise VerificationError(f"{file} is of step {state.step}", REMOVE_HINT)
    if state.step > steps:
        raise VerificationError(
            f"{file} is of step {state.step}, and the run has {steps}", REMOVE_HINT
        )
    if state.settings and state.settings not in settings:
        raise VerificationError(f"{file} is of a run with other settings", REMOVE_HINT)
    counts = [state.tokens, state.metrics_position, state.optimizer_began]
    if state.best is not None:
        _, best_step = state.best
        counts.append(best_step)
    if min(counts) < 0:
        raise VerificationError(f"{file} has a number below 0", REMOVE_HINT)
    return state


def check_checkpoint(path: Path, state: CheckpointMeta) -> str:
    """Check that a checkpoint has exactly the files of ``state.json``."""
    detail = check_files(path, state.files, STATE, hint=REMOVE_HINT)
    check_strays(path, state.files, STATE, hint=REMOVE_HINT)
    return detail


def check_metrics_file(log: Path, state: CheckpointMeta) -> None:
    """Check that a log begins with the records that it had when a checkpoint was saved."""
    length = 0
    if log.is_file():
        length = log.stat().st_size
    if length < state.metrics_position:
        raise VerificationError(
            f"{log} has {length:,} bytes, and had {state.metrics_position:,} at step {state.step}",
            RESTORE_HINT,
        )
    if state.metrics_digest and compute_blake3(log, state.metrics_position) != state.metrics_digest:
        raise VerificationError(
            f"{log} was changed before byte {state.metrics_position:,}", RESTORE_HINT
        )


def load_tensors(path: Path, state: CheckpointMeta) -> dict[str, Tensors]:
    """Return file stem -> tensors of a checkpoint, without those in the directory ``shards``."""
    from safetensors.torch import load_file

    groups = {}
    for name in state.files:
        if "/" not in name:
            with parsing(path / name, "a safetensors file"):
                groups[Path(name).stem] = load_file(path / name)
    return groups


def drop_optimizer_states(run: Path) -> None:
    """Remove the optimizer's state from all checkpoints of a run that has ended."""
    for path in list_checkpoints(run).values():
        state = read_record(path / STATE, CheckpointMeta, hint=REMOVE_HINT, limit=MAX_STATE_BYTES)
        remaining_files = without_optimizer_files(state.files)
        if len(remaining_files) == len(state.files):
            continue
        with atomic_directory(path, force=True, managed=True) as staging:
            for name in remaining_files:
                (staging / name).parent.mkdir(exist_ok=True)
                link_or_copy(path / name, staging / name)
            state.files = remaining_files
            state.optimizer = "dropped"
            state.digest = NO_DIGEST
            (staging / STATE).write_bytes(add_digest(encode_json(state)))


def without_optimizer_files(files: Mapping[str, FileDigest]) -> dict[str, FileDigest]:
    """Return the files of a checkpoint that do not hold the optimizer's state."""
    remaining_files = {}
    for name, digest in files.items():
        is_optimizer_file = name == f"{OPTIMIZER}.safetensors"
        is_optimizer_shard = name.startswith(f"{OPTIMIZER_SHARDS}/")
        if not is_optimizer_file and not is_optimizer_shard:
            remaining_files[name] = digest
    return remaining_files


def link_or_copy(source: Path, target: Path) -> None:
    """Make a hard link to a file, or a copy where the file system has no links."""
    try:
        os.link(source, target, follow_symlinks=False)
    except OSError:
        shutil.copyfile(source, target)


def remove_partial(run: Path) -> None:
    """Remove staging directories of processes that were killed."""
    remove_stale_staging(run / CHECKPOINTS)


def prune_checkpoints(run: Path, *, keep: int, best: int | None) -> None:
    """Remove all but the last checkpoints and the best one."""
    paths = list_checkpoints(run)
    for step in list(paths)[:-keep]:
        if step != best:
            discard(paths[step])


def save_shards(folder: Path, groups: Mapping[str, Tensors]) -> None:
    """Write this process's part of sharded tensors; all processes must call it.

    Args:
        folder: folder of the checkpoint.
        groups: group -> tensors by name.
    """
    from torch.distributed.checkpoint.state_dict_saver import save

    with library_errors(), _without_warning_of_one_process():
        save(flat_shards(groups), storage_writer=shard_writer(folder, groups))


def shard_writer(folder: Path, groups: Mapping[str, Tensors]) -> "HuggingFaceStorageWriter":
    """Return what writes sharded tensors, of each process one file or two.

    The optimizer's state has a file of its own, which can be removed without the others; see
    ``write_main_files``.
    """
    # Each process writes its part; any number of processes can read the result, and no pickle is
    # used. The library is imported on first use: it takes seconds.
    from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageWriter

    file_numbers: dict[str, int] = {}
    for label in flat_shards(groups):
        is_optimizer = label.startswith(f"{OPTIMIZER}/")
        file_numbers[label] = OPTIMIZER_FILE if is_optimizer else MODEL_FILE
    return HuggingFaceStorageWriter(
        str(folder / SHARDS), fqn_to_index_mapping=file_numbers, save_distributed=True
    )


def _separate_optimizer_shards(folder: Path) -> None:
    """Move the optimizer's shards of all processes to a folder of their own, if there are any."""
    for path in sorted((folder / SHARDS).glob(f"*-model-{OPTIMIZER_FILE:05}-of-*.safetensors")):
        (folder / OPTIMIZER_SHARDS).mkdir(exist_ok=True)
        path.rename(folder / OPTIMIZER_SHARDS / path.name)


def load_shards(folder: Path, groups: Mapping[str, Tensors]) -> None:
    """Load sharded tensors in place; all processes must call it."""
    from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageReader
    from torch.distributed.checkpoint.state_dict_loader import load

    with library_errors(), _without_warning_of_one_process():
        reader = HuggingFaceStorageReader(str(folder))
        load(flat_shards(groups), storage_reader=reader)


def shard_names(folder: Path) -> set[str]:
    """Return the names ``group/name`` of the tensors in a directory that ``save_shards`` wrote."""
    from safetensors import safe_open

    names: set[str] = set()
    for path in folder.glob("*.safetensors"):
        with safe_open(path, framework="pt") as file:
            names.update(file.keys())
    return names


def flat_shards(groups: Mapping[str, Tensors]) -> Tensors:
    """Return all tensors by ``group/name``; a scalar as a view of shape (1,)."""
    flat: Tensors = {}
    for group, tensors in groups.items():
        for name, tensor in tensors.items():
            if tensor.dim() == 0:
                tensor = tensor.view(1)
            flat[f"{group}/{name}"] = tensor
    return flat


@contextlib.contextmanager
def library_errors() -> Iterator[None]:
    """Raise the error of the first process that failed in place of the library's.

    The library's own exception wraps one error per process, which no caller handles.
    """
    try:
        yield
    except BaseException as error:  # The library's is not an ``Exception``.
        failures = getattr(error, "failures", None)
        if not failures:
            raise
        (cause, _), *_ = failures.values()
        raise cause from error


@contextlib.contextmanager
def _without_warning_of_one_process() -> Iterator[None]:
    """Silence the library's warning that there is only one process."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="torch.distributed is disabled")
        yield
