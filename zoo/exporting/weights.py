"""Checks of the weights that are exported."""

from zoo.adapted_models.checkpoint import AdaptedCheckpoint
from zoo.checkpoint import ADAPTER, MANIFEST, Checkpoint
from zoo.checkpoint.load import ONNX
from zoo.conversion.dtypes import cast, parse_dtype
from zoo.errors import UsageError, VerificationError
from zoo.io.digests.files import FileDigest, hash_file
from zoo.io.tensors.safetensors import SafetensorsReader

HALF_PRECISIONS = ("float16", "bfloat16")


def check_weights(checkpoint: Checkpoint) -> dict[str, FileDigest]:
    """Compare the weights with the digests of the manifest."""
    if isinstance(checkpoint, AdaptedCheckpoint):
        checkpoint.require_unchanged()
        return {**check_weights(checkpoint.base), ADAPTER: hash_file(checkpoint.path / ADAPTER)}
    digests = {}
    for path in checkpoint.weight_files():
        if checkpoint.is_export and not path.is_file():
            raise UsageError(
                f"{checkpoint.name} holds a model for {checkpoint.export_target} and no weights"
                if checkpoint.export_target != ONNX
                else f"{checkpoint.name} holds an ONNX graph and no weights",
                "export the checkpoint that it was made from",
            )
        with checkpoint.open_weights():  # raises a specific error for a damaged file
            digests[path.name] = hash_file(path)
        record = checkpoint.manifest.files.get(path.name)
        if record is None or digests[path.name].blake3 != record.blake3:
            raise VerificationError(
                f"{path} is not the file that {checkpoint.path / MANIFEST} describes",
                "convert it again",
            )
    return digests


def require_fits(checkpoint: Checkpoint, precision: str) -> None:
    """Check that a precision with fewer exponents or digits holds all weights as finite numbers."""
    # Outputs are only compared for some tokens, which need not read a row that overflows.
    if precision not in HALF_PRECISIONS:
        return
    parts: tuple[Checkpoint, ...] = (checkpoint,)
    if isinstance(checkpoint, AdaptedCheckpoint):
        parts = (checkpoint.base, *checkpoint.adapters)
    for part in parts:
        files = [part.path / ADAPTER] if part.is_adapter else part.weight_files()
        with SafetensorsReader(files) as reader:
            for name, info in reader.tensors.items():
                cast(reader.read(name), info.dtype, parse_dtype(precision), name)
