"""Updates that zoo's adapters hold in another form than peft: of several ranks, and of heads."""

import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.nn import functional as F

from zoo.adapted_models.targets import WEIGHT, AdaptableModel, matches
from zoo.adapters.lora import LoRA
from zoo.adapters.peft.layout import ENDINGS, PREFIX
from zoo.adapters.source_adapter import read_base_tensors
from zoo.checkpoint import Checkpoint
from zoo.errors import UsageError, VerificationError
from zoo.nn.adapters import DoRAAdapter, IA3Adapter, LinearAdapter, LoRAAdapter
from zoo.nn.layers.skip_init import init_empty_weights
from zoo.weights import TensorMapping, WeightMap

Number = TypeVar("Number", int, float)
# Keys of rank_pattern that are names of modules, not regular expressions.
PLAIN_NAME = re.compile(r"[\w.]+")


def with_one_rank(
    file: Path, settings: dict[str, Any], weights: WeightMap, tensors: dict[str, Tensor]
) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Return settings and tensors of the same updates without patterns of rank and alpha.

    All updates get the largest rank, by rows and columns of zeros, and B is multiplied by the ratio
    of the factors.
    """
    ranks: Mapping[str, int] = settings.get("rank_pattern") or {}
    alphas: Mapping[str, float] = settings.get("alpha_pattern") or {}
    default_alpha = float(settings.get("lora_alpha", 8)) or 1.0
    if not ranks and not alphas:
        return settings, tensors
    for name in (*ranks, *alphas):
        if not PLAIN_NAME.fullmatch(name):
            raise UsageError(
                f"{file}: rank_pattern or alpha_pattern has {name!r}, and zoo reads names of "
                "modules there",
                "merge the adapter in peft, and convert the model",
            )
    power = 0.5 if settings.get("use_rslora") else 1
    a = ENDINGS["lora_A"]
    b = ENDINGS["lora_B"]
    shapes = {}
    for entry in weights.entries():
        for source, shape in zip(entry.sources, entry.source_shapes, strict=True):
            shapes[weights.written(source).removesuffix(WEIGHT)] = shape
    modules = []
    for name in tensors:
        module = name.removesuffix(a)
        # Modules that the model lacks are reported when all tensors are mapped.
        is_module = module.removeprefix(PREFIX) in shapes and module + b in tensors
        if name.endswith(a) and is_module:
            modules.append(module)
    largest_rank = max((len(tensors[module + a]) for module in modules), default=1)
    padded_tensors = dict(tensors)
    for module in modules:
        rank = len(tensors[module + a])
        declared_rank = find_value(module, ranks, settings.get("r", 8))
        # Rows and columns of zeros are only added to what has the width of the base's matrix.
        outer_sizes = (*tensors[module + a].shape[1:], *tensors[module + b].shape[:-1])
        is_update = sorted(outer_sizes) == sorted(shapes[module.removeprefix(PREFIX)])
        if rank != declared_rank or tensors[module + b].shape[-1] != rank or not is_update:
            actual_shapes = [tuple(tensors[module + end].shape) for end in (a, b)]
            raise VerificationError(
                f"{file}: the rank of {module} is {declared_rank}, and its tensors have the shapes "
                f"{actual_shapes[0]} and {actual_shapes[1]}",
                "correct it",
            )
        alpha = find_value(module, alphas, default_alpha)
        factor = alpha / default_alpha * (largest_rank / rank) ** power
        padded_tensors[module + a] = F.pad(tensors[module + a], (0, 0, 0, largest_rank - rank))
        padded_tensors[module + b] = F.pad(
            tensors[module + b].float() * factor, (0, largest_rank - rank)
        )
    return {**settings, "r": largest_rank}, padded_tensors


def find_value(module: str, values: Mapping[str, Number], default: Number) -> Number:
    """Return the value of the first name that means a module."""
    for name, value in values.items():
        if matches(module, name):
            return value
    return default


def with_whole_modules(
    file: Path,
    settings: Mapping[str, Any],
    base: Checkpoint,
    adaptable: AdaptableModel,
    tensors: Mapping[str, Tensor],
) -> dict[str, Tensor]:
    """Return tensors in which modules that are only trained as a whole have no updates.

    These modules are heads and poolers: the update is merged into the weight of the base.
    """
    weights = adaptable.family.weights(adaptable.config, adaptable.head)
    module_names = set[str]()
    for entry in weights.entries():
        for source in entry.sources:
            module_names.add(weights.written(source).removesuffix(WEIGHT))
    for name in adaptable.names:
        module_names.discard(weights.written(name))
    updates = dict[str, dict[str, Tensor]]()
    merged_tensors = dict(tensors)
    for part_name, ending in ENDINGS.items():
        for key, tensor in tensors.items():
            module = key.removeprefix(PREFIX).removesuffix(ending)
            if key.endswith(ending) and module in module_names:
                updates.setdefault(module, {})[f"{part_name}.0"] = tensor.float()
                del merged_tensors[key]
    if not updates:
        return merged_tensors
    base_parameters = read_parameters(base, adaptable, updates)
    for module, update in updates.items():
        weight = base_parameters.get(f"{module}.weight")
        bias = base_parameters.get(f"{module}.bias")
        if weight is None or weight.dim() != 2:
            raise VerificationError(
                f"{file}: it changes {module}, which is not a matrix of {base.path}",
                "give the base that it was trained from",
            )
        layer = load_layer(file, settings, module, update, weight)
        merged_weight, merged_bias = layer.merge(weight, bias)
        merged_tensors[f"{PREFIX}{module}.weight"] = merged_weight
        if merged_bias is not None:
            merged_tensors[f"{PREFIX}{module}.bias"] = merged_bias
    return merged_tensors


def load_layer(
    file: Path,
    settings: Mapping[str, Any],
    module: str,
    update: dict[str, Tensor],
    weight: Tensor,
) -> LinearAdapter:
    """Return the layer of an update of a matrix, (out, in), with the update's values."""
    with init_empty_weights():  # The settings may declare more than the file holds.
        layer = make_layer(file, settings, update, weight)
    layer_shapes = {name: tensor.shape for name, tensor in layer.state_dict().items()}
    update_shapes = {name: tensor.shape for name, tensor in update.items()}
    if update_shapes != layer_shapes:
        raise VerificationError(
            f"{file}: the tensors of {module} do not match its settings", "save it again"
        )
    layer.load_state_dict(update, assign=True)
    return layer.requires_grad_(False)


def read_parameters(
    base: Checkpoint, adaptable: AdaptableModel, modules: Collection[str]
) -> dict[str, Tensor]:
    """Return the parameters of modules of the Hub's library as far as a base has them."""
    weights = adaptable.family.weights(adaptable.config, adaptable.head)
    entries = dict[str, TensorMapping]()
    for entry in weights.entries():
        if weights.written(entry.sources[0]).rpartition(".")[0] in modules:
            entries[entry.target] = entry
    parameters = dict[str, Tensor]()
    arrays = read_base_tensors(base, adaptable.config, adaptable.head, entries)
    for target, array in arrays.items():
        sources = [weights.written(source) for source in entries[target].sources]
        parts = [torch.from_numpy(part.copy()) for part in entries[target].op.to_hub(array)]
        parameters |= zip(sources, parts, strict=True)
    return parameters


def make_layer(
    file: Path, settings: Mapping[str, Any], update: Mapping[str, Tensor], weight: Tensor
) -> LinearAdapter:
    """Return the layer of an update of a matrix, (out, in), without its values."""
    size, width = weight.shape
    rows = {"0": range(size)}
    if "ia3_l.0" in update:
        return IA3Adapter(rows, size, width, scales_input=update["ia3_l.0"].shape == (1, width))
    try:
        method = LoRA(
            rank=settings.get("r", 8),
            alpha=float(settings.get("lora_alpha", 8)),
            use_rslora=settings.get("use_rslora", False),
        )
    except ValueError as error:
        raise VerificationError(f"{file}: {error}", "correct it") from error
    layer_class = DoRAAdapter if settings.get("use_dora") else LoRAAdapter
    return layer_class(rows, size, width, rank=method.rank, scaling=method.scaling)
