"""Writing of adapters that peft opens."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from zoo.adapted_models.base import AdapterMethod
from zoo.adapted_models.checkpoint import (
    AdaptedCheckpoint,
    adapter_file,
    adapter_method_of,
    adapter_record,
    has_own_tokenizer,
    require_finite_tensors,
)
from zoo.adapted_models.layers import ADAPTER_PART, require_same_tensors
from zoo.adapted_models.targets import AdaptableModel, Part, Site, list_names
from zoo.adapted_models.virtual_tokens import VirtualTokens
from zoo.adapters.ia3 import IA3
from zoo.adapters.lora import DoRA, LoRA
from zoo.adapters.peft import prompts
from zoo.adapters.peft.layout import (
    ENDINGS,
    PEFT_CONFIG,
    PEFT_WEIGHTS,
    PREFIX,
    SAVED_MODULES,
    TASK_TYPES,
    is_by_row,
)
from zoo.adapters.peft.target_modules import exact_targets, is_transposed
from zoo.adapters.source_adapter import (
    AdapterReport,
    adaptable_model,
    read_base_tensors,
    require_finite_effect,
    saved_modules,
    tied_values,
)
from zoo.checkpoint import FORMAT_VERSION, Checkpoint
from zoo.checkpoint.digests import check_digests
from zoo.conversion.hub_files import checkpoint_side_files, require_hub_class
from zoo.errors import UsageError
from zoo.io.digests.files import hash_folder
from zoo.io.digests.self_digest import NO_DIGEST, add_digest
from zoo.io.json import encode_json
from zoo.io.output.atomic import atomic_directory
from zoo.io.output.overwrite import HUB_RECORD, HubRecord
from zoo.io.tensors.finite import require_finite
from zoo.plugins.tasks import model_fields
from zoo.sentence_models.cross_encoder_files import PairSettings, hub_pair_files
from zoo.tokenizers import TOKENIZER_FILES
from zoo.version import __version__
from zoo.weights import WeightMap


def write_peft(checkpoint: AdaptedCheckpoint, path: Path, *, force: bool = False) -> AdapterReport:
    """Write an adapter so that peft opens it."""
    (adapter,) = checkpoint.adapters
    method = adapter_method_of(adapter)
    weights = checkpoint.weights
    adaptable = adaptable_model(checkpoint.family, checkpoint.config, checkpoint.head_name)
    settings = peft_config(method, adaptable)
    architecture = hub_class(checkpoint)
    check_digests(adapter.path)
    file_tensors = read_adapter_tensors(checkpoint, adapter, method, adaptable)
    task = TASK_TYPES.get(checkpoint.head_name)
    file_tensors = unchanged_head(checkpoint, SAVED_MODULES.get(str(task), ())) | file_tensors
    prefix = prompts.PREFIX if isinstance(method, VirtualTokens) else PREFIX
    tensors, saved_names = tensors_to_hub(adapter, method, adaptable, file_tensors, prefix)
    modules = saved_modules(weights, saved_names)
    modules += copied_modules(checkpoint, saved_names, modules)
    tensors |= saved_with_modules(checkpoint, modules, file_tensors, prefix)
    reference = hub_reference(adapter)
    auto_mapping = None
    if task is None:
        # peft names the class of models that belong to none of its tasks.
        auto_mapping = {"base_model_class": architecture, "parent_library": "transformers"}
    peft_settings = {
        **settings,
        "base_model_name_or_path": reference,
        "task_type": task,
        "auto_mapping": auto_mapping,
        "modules_to_save": modules or None,
    }
    # A network that computes a prefix, and factors of another library, may overflow.
    require_finite(tensors, path / PEFT_WEIGHTS, "nothing was written")
    sources = [checkpoint.base.path, adapter.path]
    with atomic_directory(path, force=force, sources=sources) as staging:
        save_file({k: t.contiguous() for k, t in tensors.items()}, staging / PEFT_WEIGHTS)
        (staging / PEFT_CONFIG).write_bytes(encode_json(peft_settings))
        for name, content in side_files(checkpoint, architecture).items():
            (staging / name).parent.mkdir(parents=True, exist_ok=True)
            (staging / name).write_bytes(content)
        record = HubRecord(
            zoo=FORMAT_VERSION,
            created_by={"plm-zoo": __version__},
            files=hash_folder(staging),
            digest=NO_DIGEST,
        )
        (staging / HUB_RECORD).write_bytes(add_digest(encode_json(record)))
    return AdapterReport(path, method.name, len(tensors), modules, reference)


def peft_config(method: AdapterMethod, adaptable: AdaptableModel) -> dict[str, Any]:
    """Return the keys of peft's configuration for a method."""
    if isinstance(method, LoRA):
        settings = lora_config(method, adaptable)
    elif isinstance(method, IA3):
        settings = ia3_config(method, adaptable)
    elif isinstance(method, VirtualTokens):
        settings = prompts.prompts_config(method, adaptable)
    else:
        raise UsageError(
            f"peft has no adapter of the method {method.name}",
            "`zoo run` applies it with --adapter",
        )
    return {"inference_mode": True, **settings}


def lora_config(method: LoRA, adaptable: AdaptableModel) -> dict[str, Any]:
    """Return the keys of peft's configuration for LoRA or DoRA."""
    targets, _ = exact_targets(list_names(method.target_modules), (), adaptable)
    return {
        "peft_type": "LORA",
        "r": method.rank,
        "lora_alpha": method.alpha,
        "lora_dropout": method.dropout,
        "use_rslora": method.use_rslora,
        "use_dora": isinstance(method, DoRA),
        "bias": "none",
        "target_modules": targets,
        "fan_in_fan_out": is_transposed(targets, adaptable),
    }


def ia3_config(method: IA3, adaptable: AdaptableModel) -> dict[str, Any]:
    """Return the keys of peft's configuration for (IA)^3."""
    targets, scaled_inputs = exact_targets(
        list_names(method.target_modules), method.feedforward_modules or (), adaptable
    )
    return {
        "peft_type": "IA3",
        "target_modules": targets,
        "feedforward_modules": scaled_inputs,
        "fan_in_fan_out": is_transposed(targets, adaptable),
    }


def read_adapter_tensors(
    checkpoint: AdaptedCheckpoint,
    adapter: Checkpoint,
    method: AdapterMethod,
    adaptable: AdaptableModel,
) -> dict[str, Tensor]:
    """Return the tensors of an adapter's file, checked against its settings and its base."""
    file = adapter_file(adapter)
    file_tensors = load_file(file)
    require_finite_tensors(file_tensors, file)
    model_shapes = {entry.target: entry.shape for entry in checkpoint.weights.entries()}
    adapter_tensors = {}
    for name, tensor in file_tensors.items():
        if model_shapes.get(name) != tensor.shape:
            adapter_tensors[name] = tensor
    require_same_tensors(method, adaptable, adapter_tensors, file)
    require_finite_effect(method, adaptable, adapter_tensors, checkpoint.base, file)
    return file_tensors


def tensors_to_hub(
    adapter: Checkpoint,
    method: AdapterMethod,
    adaptable: AdaptableModel,
    file_tensors: Mapping[str, Tensor],
    prefix: str,
) -> tuple[dict[str, Tensor], list[str]]:
    """Map the tensors of an adapter to those of peft.

    Args:
        adapter: the adapter.
        method: its method.
        adaptable: what adapters of the base may change.
        file_tensors: its tensors, and those of modules that peft saves with it, by our names.
        prefix: what the names of modules that were trained as a whole begin with in peft.

    Returns:
        The tensors by peft's names, and our names of those that a module of peft saves.
    """
    weights = adaptable.family.weights(adaptable.config, adaptable.head)
    buffer_names = {name for name, _ in adaptable.model.named_buffers()}
    sites = {site.module: site for site in adaptable.sites}
    tensors = dict[str, Tensor]()
    saved_names = list[str]()
    virtual_tensors = dict[str, Tensor]()
    for name, tensor in file_tensors.items():
        module, is_adapter, tensor_name = f".{name}".partition(ADAPTER_PART)
        if not is_adapter:
            if name not in buffer_names:  # No module of peft holds a copy of a buffer.
                saved_names.append(name)
            tensors |= head_to_hub(weights, name, tensor, prefix)
        elif isinstance(method, VirtualTokens):
            virtual_tensors[tensor_name] = tensor
        else:
            site = sites[module.removeprefix(".")]
            part_name, _, number = tensor_name.rpartition(".")
            module_in_hub = weights.written(hub_module(site.parts[number], adapter))
            key = f"{PREFIX}{module_in_hub}{ENDINGS[part_name]}"
            tensors[key] = rows_to_hub(site, part_name, tensor)
    if isinstance(method, VirtualTokens):
        tensors[prompts.PROMPTS] = prompts.prompts_to_hub(method, adaptable, virtual_tensors)
    return tensors, saved_names


def hub_reference(adapter: Checkpoint) -> str:
    """Return the repository of an adapter's base, or the reference that it was given by."""
    base = adapter_record(adapter).base
    if base.source is not None and base.source.repo:
        return base.source.repo
    return base.reference


def side_files(checkpoint: AdaptedCheckpoint, architecture: str) -> dict[str, bytes]:
    """Return the files next to an adapter: its labels, or the files of sentence-transformers."""
    model = checkpoint.model
    config_file = checkpoint.family.config_files[0]
    files = checkpoint_side_files(checkpoint, dtype="float32", architecture=architecture)
    labels = files.pop(config_file)
    if model.score_activation is not None:
        files |= hub_pair_files(model.pairs or PairSettings(), model.score_activation)
    elif model.pooling is None and model.pairs is None:
        # Next to it, transformers does not look for the base, but for the weights of a model.
        adapter_files = {}
        if has_own_tokenizer(checkpoint.adapters[-1]):
            for name, content in files.items():
                if name in TOKENIZER_FILES:
                    adapter_files[name] = content
        if checkpoint.family.heads()[checkpoint.head_name].has_labels:
            adapter_files[config_file] = labels
        return adapter_files
    return files


def unchanged_head(checkpoint: AdaptedCheckpoint, modules: tuple[str, ...]) -> dict[str, Tensor]:
    """Return the base's tensors of modules of the head, by the ends of these modules' names."""
    family = checkpoint.family
    config = checkpoint.config
    head = checkpoint.head_name
    backbone = {entry.target for entry in family.weights(config, "none").entries()}
    head_names = set[str]()
    for entry in checkpoint.weights.entries():
        module_parts = entry.sources[0].split(".")[:-1]
        if entry.target not in backbone and any(part.endswith(modules) for part in module_parts):
            head_names.add(entry.target)
    arrays = read_base_tensors(checkpoint.base, config, head, head_names)
    return {name: torch.from_numpy(array.copy()) for name, array in arrays.items()}


def copied_modules(
    checkpoint: AdaptedCheckpoint, saved_names: Sequence[str], modules: Sequence[str]
) -> list[str]:
    """Return more modules, whose tensors are tied to tensors that were trained as a whole.

    peft trains and saves copies of modules, which unties them. With equal copies of all of them,
    the model computes the same.
    """
    weights = checkpoint.weights
    copied_names = dict[str, None]()
    inside = tuple(f"{module}." for module in modules)
    trained_sources = set[str]()
    for entry in weights.entries():
        if entry.target in saved_names:
            trained_sources.update(entry.sources)
    for alias, owner in weights.aliases().items():
        name = weights.written(alias)
        if owner in trained_sources and not name.startswith(inside):
            copied_names[name.rpartition(".")[0]] = None
    return list(copied_names)


def saved_with_modules(
    checkpoint: AdaptedCheckpoint,
    modules: Sequence[str],
    saved_tensors: Mapping[str, Tensor],
    prefix: str,
) -> dict[str, Tensor]:
    """Return the other tensors of modules that peft saves: tied ones, and some of the base."""
    weights = checkpoint.weights
    inside = tuple(f"{module}." for module in modules)
    aliases = {name for name in map(weights.written, weights.aliases()) if name.startswith(inside)}
    base = checkpoint.base
    config = checkpoint.config
    head = checkpoint.head_name
    values = tied_values(base, config, head, saved_tensors, aliases)
    base_names = set[str]()
    for entry in weights.entries():
        is_inside = weights.written(entry.sources[0]).startswith(inside)
        if is_inside and entry.target not in saved_tensors:
            base_names.add(entry.target)
    tensors = {f"{prefix}{name}": value for name, value in values.items()}
    for name, array in read_base_tensors(base, config, head, base_names).items():
        tensors |= head_to_hub(weights, name, torch.from_numpy(array.copy()), prefix)
    return tensors


def hub_class(checkpoint: AdaptedCheckpoint) -> str:
    """Return the Hub's class of a model, which computes what the model does."""
    model = checkpoint.model
    require_hub_class(
        checkpoint.family,
        checkpoint.config,
        checkpoint.head_name,
        fields={name: getattr(model, name) for name in model_fields()},
        origin=str(checkpoint.path),
    )
    return checkpoint.family.architecture(checkpoint.config, checkpoint.head_name)


def hub_module(part: Part, adapter: Checkpoint) -> str:
    """Return the name of the Hub's module of a part."""
    if not part.in_hub:
        raise UsageError(
            f"{adapter.path}: {part.name} is not a module of the Hub's library, and peft cannot "
            "change it",
            "`zoo adapter merge` makes a whole model",
        )
    return part.name


def rows_to_hub(site: Site, part_name: str, tensor: Tensor) -> Tensor:
    """Return a tensor of an adapter with the rows of the Hub's matrix."""
    if is_by_row(part_name, tensor.shape):
        return torch.from_numpy(site.entry.op.rows_to_hub(tensor.numpy()).copy())
    return tensor


def head_to_hub(
    weights: WeightMap, name: str, tensor: Tensor, name_prefix: str
) -> dict[str, Tensor]:
    """Return the Hub's tensors of one that was trained as a whole, with a prefix of names."""
    entry = next(entry for entry in weights.entries() if entry.target == name)
    parts = entry.op.to_hub(tensor.numpy())
    return {
        f"{name_prefix}{weights.written(source)}": torch.from_numpy(part.copy())
        for source, part in zip(entry.sources, parts, strict=True)
    }
