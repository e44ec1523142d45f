"""Reading of peft's adapters."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import torch
from torch import Tensor

from zoo.adapted_models.base import AdapterMethod
from zoo.adapted_models.layers import ADAPTER_PART
from zoo.adapted_models.targets import AdaptableModel, Site, matches
from zoo.adapters.peft import prompts
from zoo.adapters.peft.config import read_head, read_method, read_peft_config
from zoo.adapters.peft.layout import AXES, ENDINGS, PEFT_CONFIG, PEFT_WEIGHTS, PREFIX, is_by_row
from zoo.adapters.peft.updates import with_one_rank, with_whole_modules
from zoo.adapters.source_adapter import (
    SourceAdapter,
    adaptable_model,
    map_head,
    read_floats,
    require_head,
    with_saved_rows,
)
from zoo.checkpoint import CONFIG, Checkpoint
from zoo.conversion.tokenizer import read_own_tokenizer
from zoo.errors import UsageError, VerificationError, did_you_mean
from zoo.families.config import Config
from zoo.hub.source import CheckpointDir
from zoo.io.files import is_named_file
from zoo.io.json import read_json
from zoo.io.limits import MAX_CONFIG_LABELS
from zoo.io.sizes import size_problem
from zoo.io.tensors.safetensors import SafetensorsReader
from zoo.sentence_models import read_pooling
from zoo.sentence_models.cross_encoder_files import (
    declares_cross_encoder,
    read_cross_encoder,
    read_pair_settings,
    score_activation,
)
from zoo.sentence_models.module_weights import module_weight_files, read_module_weights
from zoo.tokenizers.source_files import SourceFiles
from zoo.weights import WeightMap

if TYPE_CHECKING:
    from zoo.sentence_models.module_weights import ModuleWeights

# Part of a tensor's name -> why zoo does not read it, and what to do.
UNSUPPORTED_TENSORS = {
    ".lora_embedding_": (
        "is a low-rank update of an embedding, which zoo's adapters do not hold",
        "merge the adapter in peft, and convert the model",
    ),
    # peft wraps both modules and mixes their names up.
    ".modules_to_save.": (
        "is in a module of modules_to_save that holds another one, and peft cannot load it either",
        "train the adapter again with modules_to_save that name only the outer module",
    ),
}


def read_peft(
    source: Path,
    base: Checkpoint,
    *,
    head: str | None = None,
    labels: Sequence[str] | None = None,
) -> SourceAdapter:
    """Read an adapter of peft.

    Args:
        source: directory with ``adapter_config.json`` and ``adapter_model.safetensors``.
        base: the model that the adapter changes.
        head: head of the adapted model; by default the one that the files name, or the base's.
        labels: labels of the head; by default those of the files.
    """
    settings = read_peft_config(source)
    file = source / PEFT_WEIGHTS
    if not file.is_file():
        raise UsageError(
            f"{source} has no {PEFT_WEIGHTS}", "save it with safe_serialization=True in peft"
        )
    with SafetensorsReader([file]) as reader:
        tensors = read_floats(reader, file)
    require_supported(file, tensors)
    family = base.family
    head = head or read_head(settings, base)
    require_head(family, head)
    config = with_head_labels(source, base, head, tensors, labels)
    config = with_saved_rows(base, config, head, by_hub_names(tensors))
    tokenizer = read_own_tokenizer(CheckpointDir(source, str(source)), base, config)
    weights = family.weights(config, head)
    adaptable = adaptable_model(family, config, head)
    if not prompts.is_prompt(settings):
        settings, tensors = with_one_rank(source / PEFT_CONFIG, settings, weights, tensors)
        tensors = with_whole_modules(file, settings, base, adaptable, tensors)
    method, adapter_tensors, hub_tensors = map_adapter(
        source, settings, weights, adaptable, tensors
    )
    require_tied(file, settings, weights, hub_tensors)
    head_tensors = map_head(file, base, config, head, hub_tensors)
    fields, module_weights, sentence_files = sentence_fields(source, base, config, head)
    return SourceAdapter(
        directory=source,
        format="peft",
        weights_file=file,
        files=(PEFT_CONFIG, PEFT_WEIGHTS, *sentence_files),
        num_tensors=len(tensors),
        adaptable=adaptable,
        method=method,
        tensors=adapter_tensors,
        head_tensors=head_tensors,
        tokenizer=tokenizer,
        sentence_fields=fields,
        module_weights=module_weights,
    )


def require_supported(file: Path, names: Iterable[str]) -> None:
    """Check that zoo reads all tensors of an adapter, given their names."""
    for name in names:
        for part, (reason, hint) in UNSUPPORTED_TENSORS.items():
            if part in name:
                raise UsageError(f"{file}: {name} {reason}", hint)


def by_hub_names(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return tensors by their names in the base, without peft's prefix."""
    hub_tensors = {}
    for name, tensor in tensors.items():
        hub_tensors[name.removeprefix(PREFIX).removeprefix(prompts.PREFIX)] = tensor
    return hub_tensors


def require_tied(
    file: Path, settings: Mapping[str, Any], weights: WeightMap, tensors: Mapping[str, Tensor]
) -> None:
    """Check that peft did not train one of two tied tensors: it replaces the module by a copy."""
    modules = settings.get("modules_to_save") or ()
    for alias, owner in weights.aliases().items():
        name = weights.written(owner)
        copy = weights.written(alias)
        module = name.rpartition(".")[0]
        is_copied = any(matches(module, target) for target in modules)
        if name in tensors and copy not in tensors and is_copied:
            raise UsageError(
                f"{file}: {name} is trained apart from {copy}, to which the base ties it",
                "merge the adapter in peft, and convert the model with tie_word_embeddings false",
            )


def sentence_fields(
    source: Path, base: Checkpoint, config: Config, head: str
) -> "tuple[dict[str, Any] | None, ModuleWeights | None, list[str]]":
    """Return what the files next to an adapter say of sentence encoders and cross-encoders.

    Returns:
        Fields of ``config.json``, weights of modules, and the names of the files. peft itself
        writes no such files; fields and weights are ``None`` then, and those of the base apply.
    """
    files = SourceFiles(source)
    family = base.family
    config_file = family.config_files[0]
    extra: dict[str, Any] = {}
    if files.has(config_file):
        extra |= family.from_hub(files.json(config_file), str(source / config_file)).extra
    extra |= read_cross_encoder(files)
    pooling = family.sentence_settings(extra, read_pooling(files), str(source / config_file))
    activation = None
    tasks = family.heads()[head].tasks
    pairs = read_pair_settings(files, tasks)
    if "classify" in tasks and len(config.labels) == 1:
        activation = score_activation(extra, str(source / config_file))
        if activation is None and declares_cross_encoder(files):
            activation = "sigmoid"
    if pooling is None and activation is None and pairs is None:
        return None, None, []
    fields = {"pooling": pooling, "score_activation": activation, "pairs": pairs}
    names = [*sorted(files.names_read), *module_weight_files(pooling)]
    return fields, read_module_weights(source, pooling), names


def with_head_labels(
    source: Path,
    base: Checkpoint,
    head: str,
    tensors: Mapping[str, Tensor],
    labels: Sequence[str] | None,
) -> Config:
    """Return the base's configuration with the labels of the adapter's head."""
    family = base.family
    config = base.config
    if not family.heads()[head].has_labels:
        return config
    if labels is not None:
        return msgspec.structs.replace(config, labels=tuple(labels))
    if is_named_file(source / CONFIG):  # ``zoo convert --to hub`` writes it.
        file_config = family.from_hub(read_json(source / CONFIG), str(source / CONFIG)).config
        return msgspec.structs.replace(
            config, labels=file_config.labels, problem=getattr(file_config, "problem", None)
        )
    # Nothing states the number of labels. It is the number of rows of a tensor of the head, so the
    # base's number and each number of rows is tried: with the right one, all shapes fit.
    shapes = {name: tuple(tensor.shape) for name, tensor in by_hub_names(tensors).items()}
    row_counts = [shape[0] for shape in shapes.values()]
    for count in dict.fromkeys([len(config.labels), *row_counts]):
        if size_problem("number of labels", count, MAX_CONFIG_LABELS, least=1):
            continue  # These are the rows of another tensor.
        names = config.labels
        if count != len(names):
            names = tuple(f"LABEL_{number}" for number in range(count))
        candidate = msgspec.structs.replace(config, labels=names)
        if has_shapes(family.weights(candidate, head), shapes):
            return candidate
    return config


def has_shapes(weights: WeightMap, shapes: Mapping[str, tuple[int, ...]]) -> bool:
    """Return whether tensors that were trained as a whole have the shapes of the rules."""
    expected_shapes = {}
    for entry in weights.entries():
        for source, source_shape in zip(entry.sources, entry.source_shapes, strict=True):
            expected_shapes[weights.written(source)] = source_shape
    for name, shape in shapes.items():
        if name in expected_shapes and expected_shapes[name] != shape:
            return False
    return True


def map_adapter(
    source: Path,
    settings: Mapping[str, Any],
    weights: WeightMap,
    adaptable: AdaptableModel,
    tensors: Mapping[str, Tensor],
) -> tuple[AdapterMethod, dict[str, Tensor], dict[str, Tensor]]:
    """Return the method, its tensors by our names, and the other tensors by the Hub's."""
    file = source / PEFT_WEIGHTS
    if not prompts.is_prompt(settings):
        updates, modules, hub_tensors = map_updates(file, weights, adaptable, tensors)
        return read_method(source, settings, modules, adaptable), updates, hub_tensors
    hub_tensors = {name.removeprefix(prompts.PREFIX): tensor for name, tensor in tensors.items()}
    embeddings = hub_tensors.pop(prompts.PROMPTS, None)
    if embeddings is None or embeddings.dim() != 2:
        raise VerificationError(
            f"{file} has no matrix {prompts.PROMPTS}", "save it again with peft"
        )
    method, prompt_tensors = prompts.prompts_from_hub(
        source / PEFT_CONFIG, settings, adaptable, embeddings.float()
    )
    return method, prompt_tensors, hub_tensors


def map_updates(
    file: Path, weights: WeightMap, adaptable: AdaptableModel, tensors: Mapping[str, Tensor]
) -> tuple[dict[str, Tensor], dict[str, bool], dict[str, Tensor]]:
    """Map the tensors of updates to our names.

    Each tensor of peft belongs to a module of the Hub's library, whose weight a rule of the family
    maps to one of ours, or to rows of one. Updates of rows map like the rows.

    Returns:
        The tensors of updates by our names; name of a module -> whether (IA)^3 scales its inputs;
        and the other tensors by the Hub's names.
    """
    places = {}  # Name of a module of peft -> its linear map, the part of it, and its name there.
    for site in adaptable.sites:
        for number, part in site.parts.items():
            if part.in_hub:
                places[weights.written(part.name)] = (site, number, part.name)
    updates = dict[str, Tensor]()
    modules = dict[str, bool]()
    hub_tensors = dict[str, Tensor]()
    for key, tensor in tensors.items():
        name = key.removeprefix(PREFIX)
        part_name = update_part(name)
        if part_name is None or not key.startswith(PREFIX):
            hub_tensors[name] = tensor
            continue
        module = name.removesuffix(ENDINGS[part_name])
        if module not in places:
            raise VerificationError(
                f"{file}: {key} is of {module}, which is not a linear map of "
                f"{adaptable.family.name} with the head {adaptable.head}",
                did_you_mean(module, list(places)) or "name the head with --head",
            )
        if tensor.dim() != AXES[part_name]:
            raise VerificationError(
                f"{file}: {key} has the shape {tuple(tensor.shape)}, not {AXES[part_name]} axes",
                "save the adapter again",
            )
        site, number, target = places[module]
        modules[target] = part_name == "ia3_l" and not is_by_row(part_name, tensor.shape)
        target_name = f"{site.module}{ADAPTER_PART}{part_name}.{number}"
        updates[target_name] = rows_from_hub(site, part_name, tensor.float())
    return updates, modules, hub_tensors


def update_part(name: str) -> str | None:
    """Return the part of an update that a tensor is, such as ``lora_A``; ``None`` if it is none."""
    for part_name, ending in ENDINGS.items():
        if name.endswith(ending):
            return part_name
    return None


def rows_from_hub(site: Site, part_name: str, tensor: Tensor) -> Tensor:
    """Return a tensor of an adapter with the rows of our matrix."""
    if is_by_row(part_name, tensor.shape):
        return torch.from_numpy(site.entry.op.rows_from_hub(tensor.numpy()).copy())
    return tensor
