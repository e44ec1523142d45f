"""Writing of the directory of an adapter."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from safetensors.numpy import save_file as save_arrays
from safetensors.torch import save_file

from zoo.checkpoint import (
    ADAPTER,
    CONFIG,
    FORMAT_VERSION,
    MANIFEST,
    TOKENIZER,
    AdapterRecord,
    BaseRecord,
    Checkpoint,
    Manifest,
    ModelFile,
    SourceRecord,
    encode_manifest,
    weights_digest,
)
from zoo.io.digests.files import hash_folder
from zoo.io.json import encode_json
from zoo.io.output.atomic import atomic_directory
from zoo.io.tensors.finite import require_finite
from zoo.sentence_models.modules import MODULE_WEIGHTS
from zoo.version import __version__

if TYPE_CHECKING:
    from torch import Tensor

    from zoo.sentence_models.module_weights import ModuleWeights


NOTHING_WRITTEN = "nothing was written"


def base_record(reference: str, base: Checkpoint) -> BaseRecord:
    """Return the record of the model that an adapter changes."""
    path = Path(reference).expanduser()
    manifest = base.manifest
    return BaseRecord(
        reference=str(path.resolve()) if path.is_dir() else reference,
        weights=weights_digest(manifest.files),
        head=base.head_name,
        source=manifest.source,
        licence=manifest.licence or manifest.base_licence,
        languages=manifest.text_languages,
    )


def write_adapter(
    path: Path,
    model: ModelFile,
    tensors: "Mapping[str, Tensor]",
    record: AdapterRecord,
    *,
    sources: Sequence[Path],
    force: bool = False,
    source: SourceRecord | None = None,
    training: Mapping[str, Any] | None = None,
    modules: "ModuleWeights | None" = None,
    tokenizer: bytes | None = None,
    account: Mapping[str, Any] | None = None,
) -> None:
    """Write an adapter.

    Args:
        source: where the weights are from; ``None`` if they were computed here.
        modules: weights of the modules of a sentence encoder; ``None`` for the base's.
        account: what was not read of the source, for the manifest.
        tokenizer: contents of ``tokenizer.json``; ``None`` for the base's.
    """
    # Arithmetic may overflow: factors that are multiplied into tensors, and casts to float32.
    require_finite(tensors, path / ADAPTER, NOTHING_WRITTEN)
    for folder, weights in (modules or {}).items():
        require_finite(weights, path / folder / MODULE_WEIGHTS, NOTHING_WRITTEN)
    with atomic_directory(path, force=force, sources=sources) as staging:
        save_file({name: t.contiguous() for name, t in tensors.items()}, staging / ADAPTER)
        (staging / CONFIG).write_bytes(encode_json(model))
        if tokenizer is not None:
            (staging / TOKENIZER).write_bytes(tokenizer)
        for folder, weights in (modules or {}).items():
            (staging / folder).mkdir()
            save_arrays(dict(weights), staging / folder / MODULE_WEIGHTS)
        manifest = Manifest(
            zoo=FORMAT_VERSION,
            created_by={"plm-zoo": __version__},
            files=hash_folder(staging),
            dtypes={"F32": len(tensors)},
            source=source,
            licence=record.base.licence,
            languages=record.base.languages,
            account=dict(account or {}),
            training=None if training is None else dict(training),
            adapter=record,
        )
        (staging / MANIFEST).write_bytes(encode_manifest(manifest))
