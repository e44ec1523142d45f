"""Cache of ONNX graphs that sessions export on first use."""

import contextlib
from pathlib import Path

import msgspec
from blake3 import blake3

from zoo.checkpoint import CONFIG, Checkpoint, encode_manifest, is_checkpoint, load_checkpoint
from zoo.errors import SourceError, UsageError, VerificationError
from zoo.inference import QUANTIZED
from zoo.inference.exported import check_files
from zoo.io.locks import file_lock
from zoo.io.paths import home, touch_and_evict, use_cached
from zoo.plugins import state_of_family
from zoo.version import __version__, package_version


def cached_graph(checkpoint: Checkpoint, dtype: str | None = None) -> Checkpoint:
    """Return the cached export of a checkpoint; export it on first use."""
    # Processes that need the same graph wait for the one that exports it. A damaged entry is
    # exported again
    target = home() / "onnx" / _key(checkpoint, dtype)
    path = target.with_suffix(".lock")
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(file_lock(path))
        except OSError as error:
            hint = "set ZOO_HOME to a folder you can write to"
            raise UsageError(f"cannot write {path}: {error.strerror}", hint) from error
        if not _intact(target):
            _export(checkpoint, target, dtype)
        use_cached(target)
        touch_and_evict(target)
        return load_checkpoint(target)


def _export(checkpoint: Checkpoint, target: Path, dtype: str | None) -> None:
    from zoo.export.export import export_onnx  # imports torch
    from zoo.export.quantization.quantize import Quantization
    from zoo.export.quantization.search import DropError
    from zoo.export.quantization.variants import QuantizationPlan

    quantized = dtype in QUANTIZED
    try:
        export_onnx(
            checkpoint,
            target,
            dtype=None if quantized else dtype,
            force=True,
            managed=True,
            quantization=QuantizationPlan([Quantization(str(dtype))]) if quantized else None,
        )
    except DropError as error:
        command = f"zoo export {checkpoint.path} --onnx --{dtype} --max-drop X -o DIR"
        remedy = f"`{command}` accepts more, and writes a model to run in {dtype}"
        raise DropError(error.what, remedy) from error


def _key(checkpoint: Checkpoint, dtype: str | None) -> str:
    """Return the key of the cache entry: a digest of everything that the graph depends on."""
    # version of the entries: since 2, graphs of decoders have a key-value cache; since 3, entries
    # are in the Hub's layout; since 4, decoders can limit their logits
    packages = ("torch", "onnx", "onnxscript", "onnxruntime")
    versions = [f"{name} {package_version(name)}" for name in packages]
    versions.append(state_of_family(checkpoint.family.name))
    parts = [
        encode_manifest(msgspec.structs.replace(checkpoint.manifest, evaluations=[])),
        (checkpoint.path / CONFIG).read_bytes(),
        "\n".join(["4", __version__, dtype or "float32", *versions]).encode(),
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
