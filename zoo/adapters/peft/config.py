"""``adapter_config.json``: its keys, and the method that they mean."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from zoo.adapted_models.base import AdapterMethod
from zoo.adapted_models.targets import WEIGHT, AdaptableModel, list_names, matches
from zoo.adapted_models.virtual_tokens import VirtualTokens
from zoo.adapters.dora import DoRA
from zoo.adapters.ia3 import IA3
from zoo.adapters.lora import LoRA
from zoo.adapters.peft import prompts
from zoo.adapters.peft.layout import PEFT_CONFIG, TASK_TYPES
from zoo.checkpoint import Checkpoint
from zoo.errors import UsageError, VerificationError
from zoo.io.json import read_json
from zoo.io.limits import MAX_ADAPTER_SIZE, MAX_CONFIG_COUNT
from zoo.io.sizes import check_size
from zoo.weights import Transpose

# Keys of peft's configuration that do not change what the adapter computes, or that repeat what the
# tensors say.
IGNORED_KEYS = frozenset(
    (
        "revision",
        "inference_mode",
        "peft_version",
        "init_ia3_weights",
        "target_modules",
        "exclude_modules",
        "modules_to_save",
        "fan_in_fan_out",
        "layers_to_transform",
        "layers_pattern",
        "megatron_core",
        "qalora_group_size",
    )
)
READ_KEYS = frozenset(
    (
        "peft_type",
        "task_type",
        "auto_mapping",
        "base_model_name_or_path",
        "r",
        "lora_alpha",
        "lora_dropout",
        "use_rslora",
        "use_dora",
        "bias",
        "init_lora_weights",
        "feedforward_modules",
        "rank_pattern",
        "alpha_pattern",
    )
)
# Values of ``init_lora_weights`` that do not change the weights of the base.
SOUND_INIT = (True, False, None, "gaussian", "eva", "orthogonal")


class _SettingTypes(msgspec.Struct):
    """Types of the values in ``adapter_config.json`` that decide what an adapter computes."""

    r: int = 8
    lora_alpha: float = 8
    lora_dropout: float = 0.0
    use_rslora: bool = False
    use_dora: bool = False
    target_modules: list[str] | str | None = None
    feedforward_modules: list[str] | str | None = None
    modules_to_save: list[str] | None = None
    rank_pattern: dict[str, int] | None = None
    alpha_pattern: dict[str, float] | None = None
    task_type: str | None = None
    auto_mapping: dict[str, Any] | None = None
    num_transformer_submodules: int | None = None
    num_attention_heads: int | None = None
    num_layers: int | None = None


def check_types(file: Path, settings: Mapping[str, Any]) -> None:
    """Check the types of the settings of an adapter, and the sizes that they declare."""
    try:
        typed = msgspec.convert(settings, _SettingTypes)
    except msgspec.ValidationError as error:
        raise VerificationError(f"{file}: {error}", "correct it") from error
    check_size(file, "r", typed.r, MAX_ADAPTER_SIZE, least=1)
    for name, rank in (typed.rank_pattern or {}).items():
        check_size(file, f"the rank of {name!r:.100}", rank, MAX_ADAPTER_SIZE, least=1)
    for name in ("num_transformer_submodules", "num_attention_heads", "num_layers"):
        check_size(file, name, settings.get(name) or 0, MAX_CONFIG_COUNT)


def peft_config(method: AdapterMethod, adaptable: AdaptableModel) -> dict[str, Any]:
    """Return the keys of peft's configuration for a method."""
    if isinstance(method, LoRA):
        targets, _ = exact_targets(list_names(method.target_modules), (), adaptable)
        return {
            "inference_mode": True,
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
    if isinstance(method, IA3):
        targets, inputs = exact_targets(
            list_names(method.target_modules), method.feedforward_modules or (), adaptable
        )
        return {
            "inference_mode": True,
            "peft_type": "IA3",
            "target_modules": targets,
            "feedforward_modules": inputs,
            "fan_in_fan_out": is_transposed(targets, adaptable),
        }
    if isinstance(method, VirtualTokens):
        return {"inference_mode": True, **prompts.prompts_config(method, adaptable)}
    raise UsageError(
        f"peft has no adapter of the method {method.name}", "`zoo run` applies it with --adapter"
    )


def exact_targets(
    targets: Sequence[str], inputs: Sequence[str], adaptable: AdaptableModel
) -> tuple[list[str], list[str]]:
    """Return names that mean the same modules in peft: targets, and those of scaled inputs."""
    # peft also looks for targets in the head, compares names of scaled inputs without the point
    # before them, and requires that these names are among the targets. Where a short name would
    # mean another module there, all names are full.
    weights = adaptable.family.weights(adaptable.config, adaptable.head)
    adapted = part_names(adaptable, targets)
    scaled = part_names(adaptable, inputs)
    modules = {
        source.removesuffix(WEIGHT)
        for entry in weights.entries()
        for source in entry.sources
        if source.endswith(WEIGHT)
    }
    targets_in_peft = {n for n in modules if any(matches(n, target) for target in targets)}
    inputs_in_peft = {name for name in adapted if name.endswith(tuple(inputs))}
    if (targets_in_peft, inputs_in_peft) == (adapted, scaled) and set(inputs) <= set(targets):
        return [weights.written(name) for name in targets], [weights.written(n) for n in inputs]
    full_targets = sorted(weights.written(name) for name in adapted)
    return full_targets, sorted(weights.written(name) for name in scaled)


def part_names(adaptable: AdaptableModel, targets: Sequence[str]) -> set[str]:
    """Return the names of the Hub's modules that targets mean."""
    return {part.name for site in adaptable.find_sites(targets) for part in site.parts.values()}


def is_transposed(targets: Sequence[str], adaptable: AdaptableModel) -> bool:
    """Return whether the Hub's matrices are (in, out)."""
    return any(
        isinstance(site.entry.op, Transpose)
        for site in adaptable.sites
        for part in site.parts.values()
        if any(matches(part.name, target) for target in targets)
    )


def read_peft_config(source: Path) -> dict[str, Any]:
    """Read ``adapter_config.json``, and refuse what would change the results unseen."""
    file = source / PEFT_CONFIG
    settings = read_json(file)
    if not isinstance(settings, dict) or not isinstance(settings.get("peft_type"), str):
        raise VerificationError(f"{file} names no peft_type", "save the adapter again with peft")
    if settings["peft_type"] not in ("LORA", "IA3", *prompts.TYPES):
        raise UsageError(
            f"{file}: the adapter is of the type {settings['peft_type']}, which zoo does not read",
            "merge the adapter in peft, and convert the model",
        )
    for key, value in settings.items():
        accepted_keys = READ_KEYS | IGNORED_KEYS
        if prompts.is_prompt(settings):
            accepted_keys |= prompts.READ | prompts.UNREAD
        if value and key not in accepted_keys:
            raise UsageError(
                f"{file}: {key} is {value!r:.60}, which zoo does not read",
                "merge the adapter in peft, and convert the model",
            )
    check_types(file, settings)
    if settings.get("bias", "none") != "none":
        raise UsageError(
            f"{file}: bias is {settings['bias']!r}, and zoo's adapters train no biases",
            "merge the adapter in peft, and convert the model",
        )
    if settings.get("init_lora_weights") not in SOUND_INIT:
        raise UsageError(
            f"{file}: init_lora_weights is {settings['init_lora_weights']!r}, which changed the "
            "base as well",
            "merge the adapter in peft, and convert the model",
        )
    return settings


def read_head(settings: Mapping[str, Any], base: Checkpoint) -> str:
    """Return the head of peft's task type, of its class of models, or the base's."""
    heads = {task: name for name, task in TASK_TYPES.items()}
    mapping = settings.get("auto_mapping")
    if isinstance(mapping, dict):
        class_name = mapping.get("base_model_class")
        candidates = [
            name for name, head in base.family.heads().items() if class_name in head.architectures
        ]
        heads["None"] = base.head_name
        if candidates and base.head_name not in candidates:
            heads["None"] = candidates[0]
    return heads.get(str(settings.get("task_type")), base.head_name)


def read_method(
    source: Path,
    settings: Mapping[str, Any],
    modules: Mapping[str, bool],
    adaptable: AdaptableModel,
) -> AdapterMethod:
    """Return the method of peft's configuration.

    Args:
        modules: module that has tensors -> whether (IA)^3 scales its inputs.
    """
    adapted = set(modules)
    if not adapted:
        raise UsageError(
            f"{source} only changes heads and poolers, which zoo's adapters train as a whole",
            "merge the adapter in peft, and convert the model",
        )
    # peft also lists modules of a head that is trained as a whole.
    targets = [
        target
        for target in list_names(settings.get("target_modules"))
        if any(matches(name, target) for name in adaptable.names)
    ]
    if part_names(adaptable, targets) != adapted:
        targets = list(adapted)
    target_modules = tuple(sorted(targets))
    try:
        if settings["peft_type"] == "LORA":
            method_class: type[LoRA] = DoRA if settings.get("use_dora") else LoRA
            return method_class(
                rank=settings.get("r", 8),
                alpha=float(settings.get("lora_alpha", 8)),
                dropout=float(settings.get("lora_dropout", 0.0)),
                use_rslora=settings.get("use_rslora", False),
                target_modules=target_modules,
            )
        # The shapes of the tensors say which inputs are scaled; the names are patterns in peft.
        scaled = {name for name, is_scaled_input in modules.items() if is_scaled_input}
        inputs = tuple(sorted(list_names(settings.get("feedforward_modules"))))
        if set(inputs) <= set(target_modules) and part_names(adaptable, inputs) == scaled:
            return IA3(target_modules=target_modules, feedforward_modules=inputs)
        return IA3(target_modules=tuple(sorted(adapted)), feedforward_modules=tuple(sorted(scaled)))
    except ValueError as error:
        raise VerificationError(f"{source / PEFT_CONFIG}: {error}", "correct it") from error
