"""Models with adapters as whole models: adapters are merged into the weights of their base."""

import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec
import torch
from blake3 import blake3
from safetensors.torch import save_file

from zoo.adapters.checkpoint import AdaptedCheckpoint, adapter_method_of, adapter_record
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
    """Write a model with adapters as a whole model."""
    # ``force`` replaces an earlier model, ``managed`` whatever is there; see
    # ``zoo.io.output.overwrite``.
    if checkpoint.base.is_export:  # a graph that takes adapters as inputs
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
            (staging / name).parent.mkdir(exist_ok=True)
            shutil.copyfile(checkpoint.module_holder.path / name, staging / name)
        with SafetensorsReader([staging / WEIGHTS]) as reader:
            codes = [info.dtype for info in reader.tensors.values()]
        base = checkpoint.base.manifest
        manifest = Manifest(
            zoo=FORMAT_VERSION,
            created_by={"plm-zoo": __version__},
            files=hash_folder(staging),
            licence=base.licence or base.base_licence,
            dtypes={code: codes.count(code) for code in sorted(set(codes))},
            training={**(checkpoint.manifest.training or {}), "merged": merged_record(checkpoint)},
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
    stored = {name for name in base_names(base) if name in places}
    tensors: dict[str, torch.Tensor] = {}
    seen: dict[int, str] = {}
    changed = 0
    largest = 0.0
    largest_in = ""
    from_base = {places[name]: name for name in stored}
    before = dict(read_tensors(base))
    # the names that the base stores come first, so that a tied tensor keeps its owner
    for name in sorted(state, key=lambda name: name not in from_base):
        tensor = state[name]
        if id(tensor) in seen:
            continue
        seen[id(tensor)] = name
        tensors[name] = tensor.detach().contiguous()
        if not torch.isfinite(tensor).all():
            raise VerificationError(
                f"{checkpoint.name}: {name} is not finite after merging", "nothing was written"
            )
        if name in from_base:
            old = before[from_base[name]]
            if old.data_ptr() == tensor.data_ptr():
                continue
            # An adapter with a tokenizer of its own may have more rows.
            common = tuple(slice(min(sizes)) for sizes in zip(old.shape, tensor.shape, strict=True))
            difference = tensor.detach()[common].double() - old[common].double()
            change = float(difference.abs().max())
            changed += change > 0 or old.shape != tensor.shape
            if change > largest:
                largest = change
                largest_in = name
    tied = sorted(checkpoint.weights.aliases())
    require_ties(checkpoint, tensors)
    return MergeReport(path, changed, largest, largest_in, tied), tensors


def require_ties(checkpoint: AdaptedCheckpoint, tensors: "dict[str, torch.Tensor]") -> None:
    """Check that tensors that the configuration ties are still one tensor after merging."""
    with torch.device("meta"):
        fresh = checkpoint.family.model(checkpoint.config, checkpoint.head_name)
    expected = len({id(tensor) for tensor in fresh.state_dict(keep_vars=True).values()})
    if len(tensors) != expected:
        raise VerificationError(
            f"{checkpoint.name}: the model has {expected} tensors, and {len(tensors)} after "
            "merging: an adapter changed one of several that are tied",
            "nothing was written; give the model, and --adapter",
        )


def base_names(base: Checkpoint) -> list[str]:
    """Return the names of a checkpoint's tensors."""
    with base.open_weights() as reader:
        return list(reader.tensors)


def read_tensors(base: Checkpoint) -> dict[str, torch.Tensor]:
    """Return the tensors of a checkpoint, as views of its files."""
    from safetensors import safe_open

    tensors = dict[str, torch.Tensor]()
    for path in base.weight_files():
        with safe_open(path, framework="pt") as file:
            tensors |= {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    return tensors


def as_whole_model(checkpoint: Checkpoint) -> Checkpoint:
    """Return a model with adapters as a whole model in a cache; any other as it is."""
    # Adapters that cannot be merged stay next to their base.
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
