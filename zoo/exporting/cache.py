"""Cache of exports that sessions make on first use."""

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from blake3 import blake3

from zoo.adapted_models.checkpoint import AdaptedCheckpoint
from zoo.checkpoint import Checkpoint, is_checkpoint, load_checkpoint
from zoo.errors import SourceError, UsageError, VerificationError
from zoo.exporting.targets import ONNX, find_target, state_of_target
from zoo.exporting.targets.base import ExportSettings
from zoo.exporting.targets.record import read_target_info
from zoo.inference.exported import check_file, check_files
from zoo.io.cached_directories import touch_and_evict, use_cached
from zoo.io.locks import file_lock
from zoo.io.paths import home
from zoo.plugins import state_of_family
from zoo.version import __version__, package_version

if TYPE_CHECKING:
    from zoo.exporting.targets.base import ExportTarget


def cached_graph(checkpoint: Checkpoint, dtype: str | None = None) -> Checkpoint:
    """Return the cached ONNX export of a checkpoint; export it on first use."""
    checkpoint = _whole(checkpoint)
    key = _key(checkpoint, dtype, [f"onnxruntime {package_version('onnxruntime')}"])
    cached = _cached(home() / "onnx" / key, lambda at: _export(checkpoint, at, dtype))
    return replace(cached, reference=checkpoint.name)


def cached_export(
    checkpoint: Checkpoint, target: "ExportTarget", dtype: str | None = None
) -> Checkpoint:
    """Return the cached export of a checkpoint to a target; export it on first use."""
    checkpoint = _whole(checkpoint)

    def write(folder: Path) -> None:
        from zoo.exporting.gate import export_model  # imports torch

        settings = ExportSettings(
            precision=dtype,
            force=True,
            managed=True,
            allow_tokenizer_differences=True,  # sessions give the runtime token ids
        )
        export_model(target, checkpoint, folder, settings)

    versions = [f"{name} {version}" for name, version in sorted(target.versions().items())]
    key = _key(checkpoint, dtype, [*versions, state_of_target(target.name)])
    cached = _cached(home() / "exports" / target.name / key, write)
    return replace(cached, reference=checkpoint.name)


def _whole(checkpoint: Checkpoint) -> Checkpoint:
    """Merge adapters into their base, which imports torch; a kept export runs without it."""
    if not isinstance(checkpoint, AdaptedCheckpoint):
        return checkpoint
    from zoo.adapters.merge import as_whole_model

    return as_whole_model(checkpoint)


def _cached(target: Path, export: Callable[[Path], None]) -> Checkpoint:
    """Return an entry of the cache; make it on first use."""
    # Processes that need the same entry wait for the one that exports it. A damaged entry is
    # exported again
    path = target.with_suffix(".lock")
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(file_lock(path))
        except OSError as error:
            if _intact(target):  # in a shared home that is read-only
                return load_checkpoint(target)
            hint = "set ZOO_HOME to a folder you can write to"
            raise UsageError(f"cannot write {path}: {error.strerror}", hint) from error
        if not _intact(target):
            export(target)
        use_cached(target)
        touch_and_evict(target)
        return load_checkpoint(target)


def _export(checkpoint: Checkpoint, directory: Path, dtype: str | None) -> None:
    from zoo.exporting.gate import export_model  # imports torch
    from zoo.exporting.quantization.search import DropError

    settings = ExportSettings(precision=dtype, force=True, managed=True)
    try:
        export_model(find_target(ONNX), checkpoint, directory, settings)
    except DropError as error:
        command = f"zoo export {checkpoint.name} --onnx --{dtype} --max-drop X -o DIR"
        remedy = f"`{command}` accepts more, and writes a model to run in {dtype}"
        raise DropError(error.what, remedy) from error


def _key(checkpoint: Checkpoint, dtype: str | None, runtime: Sequence[str] = ()) -> str:
    """Return the key of the cache entry: a digest of everything that the graph depends on."""
    # version of the entries: since 2, graphs of decoders have a key-value cache; since 3, entries
    # are in the Hub's layout; since 4, decoders can limit their logits
    versions = [f"{name} {package_version(name)}" for name in ("torch", "onnx", "onnxscript")]
    versions += [*runtime, state_of_family(checkpoint.family.name)]
    parts = [
        checkpoint.identity,
        "\n".join(["4", __version__, dtype or "float32", *versions]).encode(),
    ]
    return blake3(b"".join(blake3(part).digest() for part in parts)).hexdigest()[:32]


def _intact(target: Path) -> bool:
    if not is_checkpoint(target):
        return False
    try:
        checkpoint = load_checkpoint(target)
        if checkpoint.export_target == ONNX:
            check_files(checkpoint)
        else:
            for name in read_target_info(checkpoint).files:
                check_file(checkpoint, name)
    except (VerificationError, SourceError):
        return False
    return True
