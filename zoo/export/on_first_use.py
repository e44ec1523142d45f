"""Graphs that were exported because a session asked for ONNX Runtime, each kept for the next."""

import contextlib
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

from blake3 import blake3

from zoo.checkpoint import CONFIG, MANIFEST, Checkpoint, is_checkpoint, load_checkpoint
from zoo.errors import SourceError, UsageError, VerificationError
from zoo.inference.exported import check_files
from zoo.io.locks import file_lock
from zoo.io.paths import home, touch_and_evict
from zoo.version import __version__


def cached_graph(checkpoint: Checkpoint, dtype: str | None = None) -> Checkpoint:
    """Return the exported form of a checkpoint, exporting it the first time.

    One process exports while others wait for it. What is found damaged is exported again.

    Args:
        checkpoint: a directory with weights.
        dtype: what the graph computes in, by default float32.

    Raises:
        UsageError: ``$ZOO_HOME`` cannot be written.
        VerificationError: the export did not pass its gate.
    """
    target = home() / "onnx" / _key(checkpoint, dtype)
    with _locked(target):
        if not _intact(target):
            from zoo.export.export import (
                export_onnx,
            )  # brings torch, which a session can do without

            export_onnx(checkpoint, target, dtype=dtype, force=True, managed=True)
        touch_and_evict(target)
        return load_checkpoint(target)


def _key(checkpoint: Checkpoint, dtype: str | None) -> str:
    """Return what the graph depends on: the manifest has the digests of all weights."""
    # the first word is of what is kept: since the second kind, graphs that write have a cache
    packages = ("torch", "onnx", "onnxscript", "onnxruntime")
    versions = [f"{name} {metadata.version(name)}" for name in packages]
    parts = [
        (checkpoint.path / MANIFEST).read_bytes(),
        (checkpoint.path / CONFIG).read_bytes(),
        "\n".join(["2", __version__, dtype or "float32", *versions]).encode(),
    ]
    return blake3(b"".join(blake3(part).digest() for part in parts)).hexdigest()[:32]


def _intact(target: Path) -> bool:
    if not is_checkpoint(target):
        return False
    try:
        check_files(load_checkpoint(target))
    except (VerificationError, SourceError):
        return False
    return True


@contextlib.contextmanager
def _locked(target: Path) -> Iterator[None]:
    """Let no other process export the same graph until the block ends."""
    path = target.with_suffix(".lock")
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(file_lock(path))
        except OSError as error:
            raise UsageError(
                f"cannot write {path}: {error.strerror}",
                "set ZOO_HOME to a folder you can write to",
            ) from error
        yield
