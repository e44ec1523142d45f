"""Checkpoints of runs as models: the weights of a step with the files of the final model."""

import shutil
from pathlib import Path

import msgspec
from safetensors import safe_open
from safetensors.torch import save_file

from zoo.checkpoint import (
    MANIFEST,
    WEIGHTS,
    WEIGHTS_INDEX,
    Checkpoint,
    encode_manifest,
    load_checkpoint,
)
from zoo.errors import UsageError
from zoo.io.digests.files import hash_file
from zoo.io.digests.self_digest import read_record
from zoo.io.digests.verified import require_blake3
from zoo.training.state.checkpoints import REMOVE_HINT, STATE, CheckpointMeta
from zoo.training.state.progress import CHECKPOINTS
from zoo.training.state.run_manifest import MANIFEST as RUN_MANIFEST

STEP_WEIGHTS = "weights.safetensors"  # The file of a checkpoint without shards.


def is_run_checkpoint(path: Path) -> bool:
    """Return whether a path is ``RUN/checkpoints/step-N``."""
    return (
        path.parent.name == CHECKPOINTS
        and (path / STATE).is_file()
        and (path.parent.parent / RUN_MANIFEST).is_file()
    )


def write_as_model(path: Path, folder: Path) -> Checkpoint:
    """Write the model of a run's checkpoint into an empty folder, and open it.

    Raises:
        UsageError: the run has no final model yet, an adapter, or shards of weights.
        VerificationError: a file is damaged.
    """
    run = path.parent.parent
    if not (run / "model").is_dir():
        raise UsageError(
            f"{run} has no final model yet, whose configuration its checkpoints have", "let it end"
        )
    final = load_checkpoint(run / "model")
    meta = read_record(path / STATE, CheckpointMeta, hint=REMOVE_HINT)
    if STEP_WEIGHTS not in meta.files or final.is_adapter:
        reason = "an adapter" if final.is_adapter else "shards of weights"
        raise UsageError(f"{path} holds {reason}, not a model", "give the final model")
    require_blake3(path / STEP_WEIGHTS, meta.files[STEP_WEIGHTS].blake3, path / STATE)
    with final.open_weights() as reader:
        names = list(reader.tensors)
    with safe_open(path / STEP_WEIGHTS, framework="pt") as file:
        stored_names: list[str] = file.keys()
        prefix = _prefix(names, stored_names, path)
        save_file({name: file.get_tensor(prefix + name) for name in names}, folder / WEIGHTS)
    weight_files = {file.name for file in final.weight_files()}
    files = {}
    for name, digest in final.manifest.files.items():
        if name in weight_files or name == WEIGHTS_INDEX:
            continue
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(final.path / name, folder / name)
        files[name] = digest
    files[WEIGHTS] = hash_file(folder / WEIGHTS)
    manifest = msgspec.structs.replace(final.manifest, files=files)
    (folder / MANIFEST).write_bytes(encode_manifest(manifest))
    return load_checkpoint(folder)


def _prefix(names: list[str], stored_names: list[str], path: Path) -> str:
    """Return the text before a model's names in the weights of all that was trained."""
    known_names = set(stored_names)
    for stored_name in stored_names:
        if not stored_name.endswith(names[0]):
            continue
        prefix = stored_name.removesuffix(names[0])
        if all(prefix + name in known_names for name in names):
            return prefix
    raise UsageError(
        f"{path} has other weights than the run's model", "give the final model of the run"
    )
