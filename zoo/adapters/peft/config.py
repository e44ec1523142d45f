"""Reading of ``adapter_config.json``: its keys, and the method that they mean."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from zoo.adapted_models.base import AdapterMethod
from zoo.adapted_models.targets import AdaptableModel, list_names, matches
from zoo.adapters.ia3 import IA3
from zoo.adapters.lora import DoRA, LoRA
from zoo.adapters.peft import prompts
from zoo.adapters.peft.layout import PEFT_CONFIG, TASK_TYPES
from zoo.adapters.peft.target_modules import part_names
from zoo.checkpoint import Checkpoint
from zoo.errors import UsageError, VerificationError
from zoo.io.json import read_json
from zoo.io.limits import MAX_ADAPTER_SIZE, MAX_CONFIG_COUNT
from zoo.io.sizes import check_size

PEFT_TYPES = ("LORA", "IA3", *prompts.TYPES)
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
# Values of ``init_lora_weights`` that leave the weights of the base as they are.
INITS_OF_ADAPTERS = (True, False, None, "gaussian", "eva", "orthogonal")
MERGE_IN_PEFT = "merge the adapter in peft, and convert the model"


def read_peft_config(source: Path) -> dict[str, Any]:
    """Read ``adapter_config.json``, and refuse what would change the results unseen."""
    file = source / PEFT_CONFIG
    settings = read_json(file)
    if not isinstance(settings, dict) or not isinstance(settings.get("peft_type"), str):
        raise VerificationError(f"{file} names no peft_type", "save the adapter again with peft")
    _require_readable(file, settings)
    check_types(file, settings)
    _require_unchanged_base(file, settings)
    return settings


def _require_readable(file: Path, settings: Mapping[str, Any]) -> None:
    """Check that zoo reads the type of an adapter, and every key that has a value."""
    peft_type = settings["peft_type"]
    if peft_type not in PEFT_TYPES:
        raise UsageError(
            f"{file}: the adapter is of the type {peft_type}, which zoo does not read",
            MERGE_IN_PEFT,
        )
    accepted_keys = READ_KEYS | IGNORED_KEYS
    if prompts.is_prompt(settings):
        accepted_keys |= prompts.READ_KEYS | prompts.IGNORED_KEYS
    for key, value in settings.items():
        if value and key not in accepted_keys:
            raise UsageError(
                f"{file}: {key} is {value!r:.60}, which zoo does not read", MERGE_IN_PEFT
            )


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
        typed_settings = msgspec.convert(settings, _SettingTypes)
    except msgspec.ValidationError as error:
        raise VerificationError(f"{file}: {error}", "correct it") from error
    check_size(file, "r", typed_settings.r, MAX_ADAPTER_SIZE, least=1)
    for name, rank in (typed_settings.rank_pattern or {}).items():
        check_size(file, f"the rank of {name!r:.100}", rank, MAX_ADAPTER_SIZE, least=1)
    for name in ("num_transformer_submodules", "num_attention_heads", "num_layers"):
        check_size(file, name, settings.get(name) or 0, MAX_CONFIG_COUNT)


def _require_unchanged_base(file: Path, settings: Mapping[str, Any]) -> None:
    """Check that training changed only the adapter, and not biases or weights of the base."""
    bias = settings.get("bias", "none")
    if bias != "none":
        raise UsageError(
            f"{file}: bias is {bias!r}, and zoo's adapters train no biases", MERGE_IN_PEFT
        )
    init = settings.get("init_lora_weights")
    if init not in INITS_OF_ADAPTERS:
        raise UsageError(
            f"{file}: init_lora_weights is {init!r}, which changed the base as well",
            MERGE_IN_PEFT,
        )


def read_head(settings: Mapping[str, Any], base: Checkpoint) -> str:
    """Return the head of peft's task type, of its class of models, or the base's."""
    task_type = settings.get("task_type")
    for head, head_task_type in TASK_TYPES.items():
        if task_type == head_task_type:
            return head
    mapping = settings.get("auto_mapping")
    if task_type not in (None, "None") or not isinstance(mapping, dict):
        return base.head_name
    # Without a task, peft names the class of models.
    class_name = mapping.get("base_model_class")
    heads_of_class = []
    for name, head_of_family in base.family.heads().items():
        if class_name in head_of_family.architectures:
            heads_of_class.append(name)
    if not heads_of_class or base.head_name in heads_of_class:
        return base.head_name
    return heads_of_class[0]


def read_method(
    source: Path,
    settings: Mapping[str, Any],
    modules: Mapping[str, bool],
    adaptable: AdaptableModel,
) -> AdapterMethod:
    """Return the method of peft's configuration.

    Args:
        source: directory of the adapter.
        settings: the configuration.
        modules: module that has tensors -> whether (IA)^3 scales its inputs.
        adaptable: what adapters of the base may change.
    """
    if not modules:
        raise UsageError(
            f"{source} only changes heads and poolers, which zoo's adapters train as a whole",
            MERGE_IN_PEFT,
        )
    targets = _read_targets(settings, modules, adaptable)
    try:
        if settings["peft_type"] == "LORA":
            return _read_lora(settings, targets)
        return _read_ia3(settings, modules, targets, adaptable)
    except ValueError as error:
        raise VerificationError(f"{source / PEFT_CONFIG}: {error}", "correct it") from error


def _read_targets(
    settings: Mapping[str, Any], modules: Mapping[str, bool], adaptable: AdaptableModel
) -> tuple[str, ...]:
    """Return the names of the configuration if they mean the modules that have tensors."""
    targets = []
    for target in list_names(settings.get("target_modules")):
        # peft also lists modules of a head that is trained as a whole.
        if any(matches(name, target) for name in adaptable.names):
            targets.append(target)
    if part_names(adaptable, targets) != set(modules):
        return tuple(sorted(modules))
    return tuple(sorted(targets))


def _read_lora(settings: Mapping[str, Any], targets: tuple[str, ...]) -> LoRA:
    """Return the method of a configuration of LoRA or DoRA."""
    method_class: type[LoRA] = DoRA if settings.get("use_dora") else LoRA
    return method_class(
        rank=settings.get("r", 8),
        alpha=float(settings.get("lora_alpha", 8)),
        dropout=float(settings.get("lora_dropout", 0.0)),
        use_rslora=settings.get("use_rslora", False),
        target_modules=targets,
    )


def _read_ia3(
    settings: Mapping[str, Any],
    modules: Mapping[str, bool],
    targets: tuple[str, ...],
    adaptable: AdaptableModel,
) -> IA3:
    """Return the method of a configuration of (IA)^3.

    The shapes of the tensors say which inputs are scaled; the names are patterns in peft.
    """
    scaled_modules = {name for name, is_scaled_input in modules.items() if is_scaled_input}
    inputs = tuple(sorted(list_names(settings.get("feedforward_modules"))))
    if set(inputs) <= set(targets) and part_names(adaptable, inputs) == scaled_modules:
        return IA3(target_modules=targets, feedforward_modules=inputs)
    return IA3(
        target_modules=tuple(sorted(modules)),
        feedforward_modules=tuple(sorted(scaled_modules)),
    )
