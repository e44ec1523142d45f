"""Models with adapters as whole models: adapters are merged into the weights of their base."""

import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec
import torch
from blake3 import blake3
from safetensors.torch import save_file

from zoo.adapted_models.checkpoint import AdaptedCheckpoint, adapter_method_of, adapter_record
from zoo.checkpoint import (
    CONFIG,
    FORMAT_VERSION,
    MANIFEST,
    TOKENIZER,
    WEIGHTS,
    Checkpoint,
    Manifest,
    encode_manifest,
    is_checkpoint,
    load_checkpoint,
)
from zoo.errors import UsageError, VerificationError
from zoo.inference.load_model import load_adapted_model
from zoo.io.cached_directories import touch_and_evict, use_cached
from zoo.io.digests.files import hash_folder
from zoo.io.json import encode_json
from zoo.io.output.atomic import atomic_directory
from zoo.io.paths import home
from zoo.io.tensors.safetensors import SafetensorsReader
from zoo.sentence_models.module_weights import module_weight_files
from zoo.version import __version__


@dataclass(frozen=True)
class MergeReport:
    """What merging changed."""

    path: Path
    changed: int  # number of the base's tensors that changed
    largest_change: float  # largest absolute change of a weight
    largest_in: str  # tensor that has it
    tied: list[str]  # names on the Hub that share the values of another tensor, as before

    def to_dict(self) -> dict[str, Any]:
        """Return the report for JSON."""
        return {**vars(self), "path": str(self.path)}


def merge(
    checkpoint: AdaptedCheckpoint, path: Path, *, force: bool = False, managed: bool = False
) -> MergeReport:
    """Write a model with adapters as a whole model.

    Args:
        checkpoint: the model with adapters.
        path: the directory to write.
        force: replace an earlier model; see ``zoo.io.output.overwrite``.
        managed: replace whatever is there.
    """
    # An export that takes adapters is a graph with adapters as inputs.
    if checkpoint.base.is_export:
        raise UsageError(
            f"{checkpoint.base.path} is an exported graph, whose weights an adapter cannot change",
            "give the model that it was exported from",
        )
    for adapter in checkpoint.adapters:
        method = adapter_method_of(adapter)
        if not method.can_merge:
            raise UsageError(
                f"{adapter.path} is an adapter of the method {method.name}, which changes no "
                "weights and cannot be merged",
                f"give the model, and --adapter {adapter.path}",
            )
    sources = [checkpoint.base.path, *(adapter.path for adapter in checkpoint.adapters)]
    with atomic_directory(path, force=force, sources=sources, managed=managed) as staging:
        report, tensors = merged_tensors(checkpoint, path)
        save_file(tensors, staging / WEIGHTS)
        (staging / CONFIG).write_bytes(encode_json(checkpoint.model))
        if checkpoint.tokenizer_file.is_file():
            (staging / TOKENIZER).write_bytes(checkpoint.tokenizer_file.read_bytes())
        for name in module_weight_files(checkpoint.model.pooling):
            (staging / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(checkpoint.module_holder.path / name, staging / name)
        with SafetensorsReader([staging / WEIGHTS]) as reader:
            codes = [info.dtype for info in reader.tensors.values()]
        base = checkpoint.base.manifest
        training = dict(checkpoint.manifest.training or {})
        training["merged"] = merged_record(checkpoint)
        manifest = Manifest(
            zoo=FORMAT_VERSION,
            created_by={"plm-zoo": __version__},
            files=hash_folder(staging),
            licence=base.licence or base.base_licence,
            languages=base.text_languages,
            dtypes={code: codes.count(code) for code in sorted(set(codes))},
            training=training,
        )
        (staging / MANIFEST).write_bytes(encode_manifest(manifest))
    return report


def merged_record(checkpoint: AdaptedCheckpoint) -> dict[str, Any]:
    """Return the base and the adapters of a merged model, for its manifest."""
    adapters = [adapter_record(adapter) for adapter in checkpoint.adapters]
    return {
        "base": msgspec.to_builtins(adapters[0].base),
        "adapters": [adapter.settings for adapter in adapters],
    }


def merged_tensors(
    checkpoint: AdaptedCheckpoint, path: Path
) -> tuple[MergeReport, dict[str, torch.Tensor]]:
    """Return the tensors of a merged model, each once, and what changed."""
    model = load_adapted_model(checkpoint)
    base = checkpoint.base
    places = checkpoint.base.sources_in(checkpoint.config, checkpoint.head_name)
    state = model.state_dict(keep_vars=True)
    base_tensors = {}
    for base_name, tensor in read_tensors(base).items():
        if base_name in places:
            base_tensors[places[base_name]] = tensor
    tensors: dict[str, torch.Tensor] = {}
    tensor_ids = set[int]()
    changed_count = 0
    largest_change = 0.0
    largest_in = ""
    # The names that the base stores come first, so that a tied tensor keeps its owner.
    for name in sorted(state, key=lambda name: name not in base_tensors):
        tensor = state[name]
        if id(tensor) in tensor_ids:
            continue
        tensor_ids.add(id(tensor))
        tensors[name] = tensor.detach().contiguous()
        if not torch.isfinite(tensor).all():
            raise VerificationError(
                f"{checkpoint.name}: {name} is not finite after merging", "nothing was written"
            )
        if name not in base_tensors:
            continue
        base_tensor = base_tensors[name]
        if base_tensor.data_ptr() == tensor.data_ptr():
            continue
        change = _largest_difference(base_tensor, tensor.detach())
        if change > 0 or base_tensor.shape != tensor.shape:
            changed_count += 1
        if change > largest_change:
            largest_change = change
            largest_in = name
    tied_names = sorted(checkpoint.weights.aliases())
    require_ties(checkpoint, tensors)
    report = MergeReport(path, changed_count, largest_change, largest_in, tied_names)
    return report, tensors


def _largest_difference(old: torch.Tensor, new: torch.Tensor) -> float:
    """Return the largest difference of the rows and columns that both tensors have.

    An adapter with a tokenizer of its own may have more rows.
    """
    common = []
    for old_size, new_size in zip(old.shape, new.shape, strict=True):
        common.append(slice(min(old_size, new_size)))
    difference = new[tuple(common)].double() - old[tuple(common)].double()
    return float(difference.abs().max())


def require_ties(checkpoint: AdaptedCheckpoint, tensors: "dict[str, torch.Tensor]") -> None:
    """Check that tensors that the configuration ties are still one tensor after merging."""
    with torch.device("meta"):
        new_model = checkpoint.family.model(checkpoint.config, checkpoint.head_name)
    state = new_model.state_dict(keep_vars=True)
    expected_count = len({id(tensor) for tensor in state.values()})
    if len(tensors) != expected_count:
        raise VerificationError(
            f"{checkpoint.name}: the model has {expected_count} tensors, and {len(tensors)} after "
            "merging: an adapter changed one of several that are tied",
            "nothing was written; give the model, and --adapter",
        )


def read_tensors(base: Checkpoint) -> dict[str, torch.Tensor]:
    """Return the tensors of a checkpoint, as views of its files."""
    from safetensors import safe_open

    tensors = dict[str, torch.Tensor]()
    for path in base.weight_files():
        with safe_open(path, framework="pt") as file:
            for name in file.keys():  # noqa: SIM118
                tensors[name] = file.get_tensor(name)
    return tensors


def as_whole_model(checkpoint: Checkpoint) -> Checkpoint:
    """Return a model with adapters as a whole model in a cache; any other as it is.

    Adapters that cannot be merged stay next to their base.
    """
    if not isinstance(checkpoint, AdaptedCheckpoint):
        return checkpoint
    if not checkpoint.can_merge:
        return checkpoint
    key = blake3(__version__.encode() + checkpoint.identity)
    target = home() / "cache" / f"{checkpoint.path.name}-merged-{key.hexdigest(8)}"
    while not (is_checkpoint(target) and use_cached(target)):
        merge(checkpoint, target, force=True, managed=True)
    touch_and_evict(target)
    return replace(load_checkpoint(target), reference=checkpoint.name)
