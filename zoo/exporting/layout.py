"""Files of an export other than its graphs, as readers of the Hub's layout expect them."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from zoo.adapted_models.checkpoint import AdaptedCheckpoint
from zoo.checkpoint import (
    FORMAT_VERSION,
    MANIFEST,
    TOKENIZER,
    Checkpoint,
    Manifest,
    encode_manifest,
)
from zoo.conversion.hub_files import checkpoint_side_files, require_hub_class
from zoo.conversion.model_card import MODEL_CARD, without_directories
from zoo.errors import UsageError
from zoo.exporting.card import text_splitter
from zoo.io.digests.files import hash_folder
from zoo.plugins import installed
from zoo.plugins.tasks import model_fields
from zoo.version import __version__


def unreadable_elsewhere(checkpoint: Checkpoint) -> str | None:
    """Return why programs that read the Hub's layout compute other results; ``None`` if not."""
    # Such an export is complete for ``zoo run`` and for ONNX Runtime
    model = checkpoint.model
    if isinstance(checkpoint, AdaptedCheckpoint) and not checkpoint.can_merge:
        return "the model has an adapter that no class of the Hub has"
    try:
        checkpoint.family.architecture(checkpoint.config, model.head)
        require_hub_class(
            checkpoint.family,
            checkpoint.config,
            model.head,
            fields={name: getattr(model, name) for name in model_fields()},
            origin="the model",
        )
    except UsageError as error:
        return error.what
    return None


def write_hub_files(
    checkpoint: Checkpoint,
    staging: Path,
    *,
    dtype: str,  # of ``config.json``
    card: bytes,  # the model card
    record: dict[str, Any],  # of the export, for the manifest
    tensors: Mapping[str, int],  # dtype -> number of tensors
    more: Mapping[str, Any] | None = None,  # further keys of ``config.json``
) -> None:
    """Write configuration, tokenizer and pooling in the Hub's layout, and the manifest."""
    manifest = checkpoint.manifest
    family = checkpoint.family
    architecture = None
    if unreadable_elsewhere(checkpoint) is None:
        architecture = family.architecture(checkpoint.config, checkpoint.head_name)
    files = checkpoint_side_files(
        _cut_like_pooling(checkpoint),
        dtype=dtype,
        architecture=architecture,
        more=more,
    )
    if text_splitter(checkpoint) is not None:
        # The splitter's files have all that other programs read; zoo also reads this one.
        files[TOKENIZER] = checkpoint.tokenizer_file.read_bytes()
    files[MODEL_CARD] = card
    for name, content in files.items():
        (staging / name).parent.mkdir(parents=True, exist_ok=True)
        (staging / name).write_bytes(content)
    plugin = installed().get(family.name)
    creator = {plugin.distribution: plugin.version} if plugin else {}
    source = manifest.source
    if source is not None:
        source = msgspec.structs.replace(source, reference=without_directories(source.reference))
    described = Manifest(
        zoo=FORMAT_VERSION,
        created_by={"plm-zoo": __version__, **creator},
        files=hash_folder(staging),
        source=source,
        licence=manifest.licence,
        languages=manifest.languages,
        tags=manifest.tags,
        training=without_directories(manifest.training) if manifest.training else None,
        dtypes=dict(tensors),
        export=record,
        model=checkpoint.model,
    )
    (staging / MANIFEST).write_bytes(encode_manifest(described))


def _cut_like_pooling(checkpoint: Checkpoint) -> Checkpoint:
    """Return a checkpoint whose tokenizer cuts texts at the length of its sentence encoder.

    Programs that open graphs read the length in ``tokenizer_config.json``, and only
    sentence-transformers reads ``sentence_bert_config.json``.
    """
    model = checkpoint.model
    length = model.pooling.max_tokens if model.pooling else None
    if length is None or model.tokenizer is None:
        return checkpoint
    tokenizer = msgspec.structs.replace(model.tokenizer, max_tokens=length)
    return replace(checkpoint, model=msgspec.structs.replace(model, tokenizer=tokenizer))
