"""Final models of a run: checkpoints in the format that a conversion writes."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec
import torch

from zoo.checkpoint import (
    ADAPTER,
    CONFIG,
    FORMAT_VERSION,
    MANIFEST,
    TOKENIZER,
    WEIGHTS,
    AdapterRecord,
    Manifest,
    ModelFile,
    encode_manifest,
)
from zoo.checkpoint.digests import check_manifest
from zoo.data.tokenizer import ExistingTokenizer
from zoo.errors import VerificationError
from zoo.families.base import GENERATING, Family
from zoo.hub.files import map_os_errors
from zoo.io.digests.files import FileDigest
from zoo.io.digests.self_digest import NO_DIGEST, add_digest
from zoo.io.json import encode_json, read_json_record
from zoo.io.output.atomic import atomic_directory, atomic_write
from zoo.io.output.overwrite import check_target
from zoo.io.output.staging import staged_path
from zoo.io.tensors.finite import require_finite
from zoo.objectives.base import TrainedModel
from zoo.sentence_models.modules import MODULE_WEIGHTS
from zoo.tokenizers.info import TokenizerInfo
from zoo.training.state.checkpoints import DISK_FULL_HINT, write_tensors
from zoo.training.state.progress import FINAL, RESTORE_HINT, FinalRecord, read_final_record
from zoo.version import __version__

MAX_TIME: Final = "max_time"


def check_writable(
    path: Path, family: Family, tokenizer: ExistingTokenizer | None, model: ModelFile
) -> None:
    """Check before training that the final model can be written and read back."""
    # Configuration and tokenizer are written to a staging directory, read back, and removed.
    check_target(path, force=True, in_run=True)
    with (
        map_os_errors(path, "nothing was trained yet"),
        staged_path(path) as trial,
    ):
        trial.mkdir()
        (trial / CONFIG).write_bytes(encode_json(model))
        if tokenizer is not None:
            (trial / TOKENIZER).write_bytes(tokenizer.json)
        config_type = family.config_type
        config_on_disk = read_json_record(trial / CONFIG, ModelFile).config
        try:
            converted_config = msgspec.convert(config_on_disk, config_type)
            is_equal = converted_config == msgspec.convert(model.config, config_type)
        except (msgspec.ValidationError, ValueError):
            is_equal = False
        if tokenizer is not None and (trial / TOKENIZER).read_bytes() != tokenizer.json:
            is_equal = False
        if not is_equal:
            raise VerificationError(
                f"the configuration that {path} would have cannot be read back as it is written",
                "give other values of config",
            )


def model_file(
    family: Family,
    tokenizer: ExistingTokenizer | None,
    network: TrainedModel,
    generation: Mapping[str, Any],
) -> ModelFile:
    """Return the contents of ``config.json`` of a final model."""
    task_fields: dict[str, Any] = {}
    for name, value in network.fields.items():
        if isinstance(value, torch.Tensor):
            task_fields[name] = value.detach().float().tolist()
        else:
            task_fields[name] = value
    generation_settings: dict[str, Any] = {}
    if GENERATING.intersection(family.heads()[network.head].tasks):
        generation_settings = dict(generation)
    tokenizer_info: TokenizerInfo | None = None
    if tokenizer is not None:
        tokenizer_info = tokenizer.info
    return ModelFile(
        zoo=FORMAT_VERSION,
        family=family.name,
        head=network.head,
        config=msgspec.to_builtins(network.config),
        tokenizer=tokenizer_info,
        pooling=network.pooling,
        generation=generation_settings,
        **task_fields,
    )


def save_final_model(
    path: Path,
    model: ModelFile,
    tokenizer: ExistingTokenizer | None,
    weights: Mapping[str, torch.Tensor],
    training: Any,
    modules: Mapping[str, torch.Tensor] | None = None,
    adapter: AdapterRecord | None = None,
) -> dict[str, FileDigest]:
    """Write a final model or adapter, replacing an earlier one; return the digests of its files.

    Args:
        path: directory of the model.
        model: contents of ``config.json``.
        tokenizer: tokenizer to write; ``None`` for none.
        weights: the model's tensors, or those that an adapter has.
        training: record of the training in the manifest.
        modules: weights of a sentence encoder's modules, see ``TrainedModel``.
        adapter: record of the adapter; ``None`` for a model.
    """
    from zoo.io.digests.files import hash_folder

    module_weights = modules or {}
    weights_file = WEIGHTS
    if adapter is not None:
        weights_file = ADAPTER
    require_finite(
        {**weights, **module_weights},
        path,
        "the last steps of training diverged; continue from an earlier checkpoint",
    )
    with atomic_directory(path, force=True, in_run=True) as staging:
        write_tensors(staging / weights_file, dict(weights))
        for folder, tensors in group_by_folder(module_weights).items():
            (staging / folder).mkdir()
            write_tensors(staging / folder / MODULE_WEIGHTS, tensors)
        (staging / CONFIG).write_bytes(encode_json(model))
        if tokenizer is not None:
            (staging / TOKENIZER).write_bytes(tokenizer.json)
        manifest = Manifest(
            zoo=FORMAT_VERSION,
            created_by={"plm-zoo": __version__},
            files=hash_folder(staging),
            dtypes={"F32": len(weights) + len(module_weights)},
            training=training,
            adapter=adapter,
        )
        (staging / MANIFEST).write_bytes(encode_manifest(manifest))
    return {name: manifest.files[name] for name in sorted(manifest.files)}


def group_by_folder(modules: Mapping[str, torch.Tensor]) -> dict[str, dict[str, torch.Tensor]]:
    """Return folder -> name -> weight, for modules of a sentence encoder."""
    folders: dict[str, dict[str, torch.Tensor]] = {}
    for name, tensor in modules.items():
        folder, _, weight_name = name.partition(".")
        folders.setdefault(folder, {})[weight_name] = tensor
    return folders


def write_final_record(
    run: Path, models: Mapping[str, dict[str, FileDigest]], *, stopped_at: int | None = None
) -> None:
    """Record the files of a run's final models in its directory, so that other models are found."""
    record = FinalRecord(models=dict(models), digest=NO_DIGEST)
    if stopped_at is not None:
        record.stopped_by = MAX_TIME
        record.step = stopped_at
    with map_os_errors(run, DISK_FULL_HINT):
        atomic_write(run / FINAL, add_digest(encode_json(record)))


def require_final(path: Path) -> None:
    """Check that a model in a run's directory is the one that the run wrote."""
    # Its manifest may have changed, as by ``zoo eval``; its files may not. Runs of earlier versions
    # have no record, and are not checked.
    file = path.parent / FINAL
    if not os.path.lexists(file):
        return
    recorded_digests = read_final_record(path.parent).models.get(path.name)
    current_digests = check_manifest(path).files
    if recorded_digests is None:
        return
    is_equal = recorded_digests.keys() == current_digests.keys()
    if is_equal:
        for name, recorded in recorded_digests.items():
            current = current_digests[name]
            if (current.bytes, current.blake3) != (recorded.bytes, recorded.blake3):
                is_equal = False
    if not is_equal:
        raise VerificationError(f"{path} is not the model that the run wrote", RESTORE_HINT)
