"""Adapters in the layout of AdapterHub's library, and the head of a model class."""

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import torch
from torch import Tensor

from zoo.adapted_models.base import AdapterMethod
from zoo.adapted_models.targets import AdaptableModel
from zoo.adapters.bottleneck import ATTENTION, BottleneckMethod, Houlsby, Parallel, Pfeiffer
from zoo.adapters.peft.config import check_types, read_method
from zoo.adapters.peft.layout import ENDINGS, PREFIX
from zoo.adapters.peft.prompts import prefix_owner
from zoo.adapters.peft.read import map_updates
from zoo.adapters.prefix import PrefixTuning
from zoo.adapters.source_adapter import (
    SourceAdapter,
    adaptable_model,
    map_head,
    read_floats,
    require_head,
)
from zoo.checkpoint import Checkpoint
from zoo.conversion.tokenizer import read_own_tokenizer
from zoo.errors import UsageError, VerificationError, did_you_mean
from zoo.families.config import Config
from zoo.hub.select_files import pickle_refused
from zoo.hub.source import CheckpointDir
from zoo.io.files import is_named_file
from zoo.io.json import read_json
from zoo.nn.layers.skip_init import init_empty_weights
from zoo.plugins import format_named

MethodT = TypeVar("MethodT", bound=AdapterMethod)

CONFIG = "adapter_config.json"
HEAD_CONFIG = "head_config.json"
WEIGHTS = {"adapter.safetensors": "safetensors", "pytorch_adapter.bin": "pytorch"}
HEAD_WEIGHTS = {"model_head.safetensors": "safetensors", "pytorch_model_head.bin": "pytorch"}
# Values of the settings that change what a bottleneck computes, in all layouts that are read.
SHARED_SETTINGS: Mapping[str, Any] = {
    "cross_adapter": False,
    "adapter_residual_before_ln": False,
    "inv_adapter": None,
    "is_parallel": False,
    "leave_out": [],
    "ln_after": False,
    "ln_before": False,
    "original_ln_after": True,
    "output_adapter": True,
    "phm_layer": False,
    "residual_before_ln": True,
    "stochastic_depth": 0.0,
    "use_gating": False,
}
ADAPTER_LAYOUTS: Mapping[type[BottleneckMethod], Mapping[str, Any]] = {
    Houlsby: {**SHARED_SETTINGS, "mh_adapter": True, "original_ln_before": False},
    Pfeiffer: {**SHARED_SETTINGS, "mh_adapter": False, "original_ln_before": True},
    Parallel: {
        **SHARED_SETTINGS,
        "mh_adapter": False,
        "original_ln_before": False,
        "is_parallel": True,
    },
}
# Values of ``scaling`` for which a tensor holds one factor, or one for each row.
LEARNED_SCALING = ("learned", "channel")
METHOD_SETTINGS = ("non_linearity", "reduction_factor", "scaling")
# Settings of training, and of layers that ``phm_layer`` switches on.
IGNORED_SETTINGS = frozenset(
    (
        "dropout",
        "dtype",
        "init_weights",
        "init_weights_seed",
        "inv_adapter_reduction_factor",
        "hypercomplex_nonlinearity",
        "learn_phm",
        "factorized_phm_W",
        "factorized_phm_rule",
        "phm_bias",
        "phm_c_init",
        "phm_dim",
        "phm_init_range",
        "phm_rank",
        "shared_W_phm",
        "shared_phm_rule",
    )
)
# Settings of LoRA and (IA)^3 -> the accepted values. DoRA scales the bias there, and only the
# product in peft.
UPDATE_SETTINGS: Mapping[str, tuple[Any, ...]] = {
    "composition_mode": ("add", "scale"),
    "use_dora": (False,),
    "use_gating": (False,),
    "vera_b": (None,),
    "vera_d": (None,),
}
# Their settings with any value: settings that peft has too, settings of training, and what the
# tensors say.
ANY_UPDATE_SETTINGS = frozenset(
    (
        "alpha",
        "architecture",
        "dropout",
        "r",
        "dtype",
        "init_weights",
        "init_weights_seed",
        "attn_matrices",
        "intermediate_lora",
        "leave_out",
        "output_lora",
        "selfattn_lora",
    )
)
# Settings of prefixes -> the accepted values.
PREFIX_SETTINGS: Mapping[str, tuple[Any, ...]] = {
    "leave_out": ([],),
    "use_gating": (False,),
    "non_linearity": ("tanh",),
}
# Their settings with any value: settings that are read, settings of training, and of layers that
# other settings switch on.
ANY_PREFIX_SETTINGS = frozenset(
    (
        "architecture",
        "prefix_length",
        "flat",
        "bottleneck_size",
        "encoder_prefix",
        "cross_prefix",
        "dropout",
        "dtype",
        "init_weights",
        "init_weights_seed",
        "shared_gating",
    )
)
# Places of a prefix in self-attention; the second is a decoder's, in models that have one.
SELF_ATTENTION = ("self_prefix.", "self.")
# AdapterHub's name of a tensor of a prefix -> ours.
PREFIX_PARTS = {
    "wte.weight": "embedding",
    **{f"control_trans.{k}.{p}": f"transform.{k}.{p}" for k in (0, 2) for p in ("weight", "bias")},
}
SCALING = ".scaling"
DENSE = ".output.dense"
OUTPUT = ".output"
# AdapterHub's name of a layer of a bottleneck -> ours.
BOTTLENECK_PARTS = {"adapter_down.0": "down", "adapter_up": "up"}


def is_adapterhub(settings: object) -> bool:
    """Return whether AdapterHub's library wrote the contents of ``adapter_config.json``."""
    return isinstance(settings, dict) and isinstance(settings.get("config"), dict)


def read_adapterhub(
    source: Path,
    base: Checkpoint,
    *,
    head: str | None = None,
    labels: Sequence[str] | None = None,
    allow_pickle: bool = False,
) -> SourceAdapter:
    """Read an adapter of AdapterHub's library.

    A directory has ``adapter_config.json``, ``pytorch_adapter.bin`` or ``adapter.safetensors``,
    and for a head ``head_config.json`` and ``pytorch_model_head.bin`` or
    ``model_head.safetensors``.

    Args:
        source: the directory.
        base: the model that the adapter changes.
        head: head of the adapted model; by default the base's if the files have a head.
        labels: labels of the head; by default those of the files.
        allow_pickle: whether to read files that can execute code.
    """
    adapter_config = read_json(source / CONFIG)
    method_settings = read_settings(source / CONFIG, adapter_config["config"])
    weights_name, tensors = read_tensors(source, WEIGHTS, allow_pickle=allow_pickle)
    if weights_name is None:
        raise UsageError(f"{source} has neither {' nor '.join(WEIGHTS)}", "save the adapter again")
    files = [weights_name]
    hub_head_tensors: dict[str, Tensor] = {}
    if head != "none":
        head_name, hub_head_tensors = read_tensors(source, HEAD_WEIGHTS, allow_pickle=allow_pickle)
        if head_name is not None:
            files.append(head_name)
        elif is_named_file(source / HEAD_CONFIG):
            raise UsageError(
                f"{source} has {HEAD_CONFIG}, and neither {' nor '.join(HEAD_WEIGHTS)}",
                "save the adapter again, or convert it without its head by --head none",
            )
    if not head:
        head = base.head_name if hub_head_tensors else "none"
    require_head(base.family, head)
    _refuse_flexible_head(source, hub_head_tensors)
    config = base.config
    if hub_head_tensors:
        config = with_labels(source, base.config, labels)
    tokenizer = read_own_tokenizer(CheckpointDir(source, str(source)), base, config)
    adaptable = adaptable_model(base.family, config, head)
    file = source / weights_name
    method, adapter_tensors = _map_tensors(
        file, adapter_config, method_settings, adaptable, tensors
    )
    head_tensors = map_head(file, base, config, head, hub_head_tensors)
    files.append(CONFIG)
    if head != "none" and is_named_file(source / HEAD_CONFIG):
        files.append(HEAD_CONFIG)
    return SourceAdapter(
        directory=source,
        format="adapterhub",
        weights_file=file,
        files=files,
        num_tensors=len(tensors) + len(hub_head_tensors),
        adaptable=adaptable,
        method=method,
        tensors=adapter_tensors,
        head_tensors=head_tensors,
        tokenizer=tokenizer,
    )


def _refuse_flexible_head(source: Path, tensors: Collection[str]) -> None:
    """Check that a head belongs to a class of the Hub's library."""
    for name in tensors:
        if name.startswith("heads."):
            raise UsageError(
                f"{source} has a head of the library's own model classes ({name}), which no class "
                "of the Hub has",
                "--head none converts the adapter without it",
            )


def _map_tensors(
    file: Path,
    adapter_config: Mapping[str, Any],
    settings: BottleneckMethod | PrefixTuning | dict[str, Any],
    adaptable: AdaptableModel,
    tensors: Mapping[str, Tensor],
) -> tuple[AdapterMethod, dict[str, Tensor]]:
    """Return the method of an adapter, and its tensors by our names."""
    if isinstance(settings, BottleneckMethod):
        return settings, map_bottlenecks(file, adapter_config, settings, adaptable, tensors)
    if isinstance(settings, PrefixTuning):
        method = settings.resolved(adaptable)
        return method, map_prefix(file, adapter_config, settings, adaptable, tensors)
    return map_as_in_peft(file, adapter_config, settings, adaptable, tensors)


def read_settings(
    file: Path, config: Mapping[str, Any]
) -> BottleneckMethod | PrefixTuning | dict[str, Any]:
    """Return the method, or the settings of LoRA and (IA)^3 as peft has them."""
    architecture = config.get("architecture")
    if architecture is None:
        return read_bottleneck(file, config)
    if architecture == "prefix_tuning":
        return read_prefix(file, config)
    if architecture != "lora":
        hint = "zoo has no such adapter"
        if architecture == "prompt_tuning":
            hint = "its prompts follow the norm of the embeddings, and zoo's precede it, as in peft"
        raise UsageError(
            f"{file}: the adapter is of the architecture {architecture}, and zoo reads "
            "bottlenecks, LoRA, (IA)^3 and prefixes of AdapterHub",
            hint,
        )
    hint = "zoo has LoRA and (IA)^3 as in peft"
    require_supported_settings(file, config, UPDATE_SETTINGS, ANY_UPDATE_SETTINGS, hint)
    if config.get("composition_mode", "add") == "add":
        settings = {
            "peft_type": "LORA",
            "r": config.get("r", 8),
            "lora_alpha": config.get("alpha", 8),
            "lora_dropout": config.get("dropout", 0.0),
        }
        check_types(file, settings)
        return settings
    if config.get("alpha", 1) != 1:
        raise unknown_setting(file, "alpha", config["alpha"], "the factors of (IA)^3 have none")
    return {"peft_type": "IA3"}


def read_prefix(file: Path, config: Mapping[str, Any]) -> PrefixTuning:
    """Return the method of a prefix, all of whose settings are known."""
    is_flat = config.get("flat", False)
    checked_settings = dict(config)
    if is_flat:
        # There is no network whose activation this could be.
        checked_settings.pop("non_linearity", None)
    hint = "zoo has prefixes as in peft"
    require_supported_settings(file, checked_settings, PREFIX_SETTINGS, ANY_PREFIX_SETTINGS, hint)
    settings = {
        "num_virtual_tokens": config.get("prefix_length", 30),
        "shift_positions": False,
    }
    if not is_flat:
        settings["prefix_projection"] = True
        settings["encoder_hidden_size"] = config.get("bottleneck_size", 512)
    return _convert_settings(file, settings, PrefixTuning)


def require_supported_settings(
    file: Path,
    config: Mapping[str, Any],
    accepted_values: Mapping[str, tuple[Any, ...]],
    ignored_names: Collection[str],
    hint: str,
) -> None:
    """Check that no setting of a configuration changes what an adapter computes.

    Args:
        file: the file that has the settings, for errors.
        config: the settings.
        accepted_values: name of a setting -> the values that it may have.
        ignored_names: settings that may have any value. All other settings have to be off.
        hint: what to do otherwise.
    """
    for name, value in config.items():
        if name in accepted_values:
            is_accepted = value in accepted_values[name]
        else:
            is_accepted = name in ignored_names or value in (None, False)
        if not is_accepted:
            raise unknown_setting(file, name, value, hint)


def _convert_settings(
    file: Path, settings: Mapping[str, Any], method_class: type[MethodT]
) -> MethodT:
    """Return the method with settings, which come from a file."""
    try:
        return msgspec.convert(settings, method_class)
    except (msgspec.ValidationError, ValueError) as error:
        raise UsageError(f"{file}: {error}", "zoo has no such adapter") from error


def unknown_setting(file: Path, name: str, value: object, hint: str) -> UsageError:
    """Return the error of a setting that would change results."""
    return UsageError(f"{file}: {name} is {value!r:.60}, which zoo's adapters do not have", hint)


def read_bottleneck(file: Path, config: Mapping[str, Any]) -> BottleneckMethod:
    """Return the method of a configuration, all of whose settings are known."""
    fewest_problems = dict[str, Any]()
    for method_class, layout in ADAPTER_LAYOUTS.items():
        problems = _layout_problems(config, layout)
        if not problems:
            settings = {name: config[name] for name in METHOD_SETTINGS if name in config}
            if settings.get("scaling") in LEARNED_SCALING:
                settings["scaling"] = 1.0  # ``map_bottlenecks`` multiplies the output layer.
            return _convert_settings(file, settings, method_class)
        if not fewest_problems or len(problems) < len(fewest_problems):
            fewest_problems = problems
    name, value = next(iter(fewest_problems.items()))
    hint = "houlsby is double_seq_bn there, pfeiffer seq_bn, and parallel par_bn"
    raise unknown_setting(file, name, value, hint)


def _layout_problems(config: Mapping[str, Any], layout: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a configuration that differ from a layout, with their values."""
    problems = {}
    known_names = {*layout, *METHOD_SETTINGS, *IGNORED_SETTINGS, "architecture"}
    for name, value in config.items():
        if name not in known_names and value not in (None, False):
            problems[name] = value
    for name, layout_value in layout.items():
        if config.get(name, layout_value) != layout_value:
            problems[name] = config.get(name)
    return problems


def read_tensors(
    source: Path, names: Mapping[str, str], *, allow_pickle: bool
) -> tuple[str | None, dict[str, Tensor]]:
    """Return the name and the tensors of the first of some files that is there."""
    for name, format_name in names.items():
        if is_named_file(source / name):
            file_format = format_named(format_name)
            if file_format.executable and not allow_pickle:
                raise pickle_refused(str(source), [name])
            with file_format.open(source, [name]) as reader:
                tensors = read_floats(reader, source / name)
            return name, tensors
    return None, {}


def with_labels(source: Path, config: Config, labels: Sequence[str] | None) -> Config:
    """Return a configuration with the labels of an adapter's head."""
    head_config = {}
    if is_named_file(source / HEAD_CONFIG):
        head_config = read_json(source / HEAD_CONFIG)
    ids = head_config.get("label2id") if isinstance(head_config, dict) else None
    if labels is None and isinstance(ids, dict) and ids:
        if sorted(ids.values(), key=str) != sorted(range(len(ids)), key=str):
            raise VerificationError(
                f"{source / HEAD_CONFIG}: label2id is not a numbering", "fix it"
            )
        labels = sorted(ids, key=lambda name: int(ids[name]))
    if labels is None:
        return config
    return msgspec.structs.replace(config, labels=tuple(labels))


def map_as_in_peft(
    file: Path,
    adapter_config: Mapping[str, Any],
    settings: Mapping[str, Any],
    adaptable: AdaptableModel,
    tensors: Mapping[str, Tensor],
) -> tuple[AdapterMethod, dict[str, Tensor]]:
    """Return the method of LoRA or (IA)^3, and its tensors by our names.

    ``<module>.loras.<name>.lora_A`` is ``<module>.lora_A.weight`` in peft; the factors of (IA)^3
    are called lora_B, and scale outputs.
    """
    infix = f".loras.{adapter_config.get('name')}."
    peft_tensors = dict[str, Tensor]()
    peft_parts = {"lora_A": "lora_A", "lora_B": "lora_B"}
    if settings["peft_type"] == "IA3":
        peft_parts = {"lora_B": "ia3_l"}
    weights = adaptable.family.weights(adaptable.config, adaptable.head)
    for name, tensor in tensors.items():
        module, _, part = name.partition(infix)
        if part not in peft_parts:
            raise VerificationError(
                f"{file}: {name} does not belong to a {settings['peft_type']} adapter",
                "save it again",
            )
        hub_module = weights.prefix + module.removeprefix(weights.prefix)
        peft_name = f"{PREFIX}{weights.written(hub_module)}{ENDINGS[peft_parts[part]]}"
        peft_tensors[peft_name] = tensor
    adapter_tensors, modules, _ = map_updates(file, weights, adaptable, peft_tensors)
    target_modules = sorted({".".join(module.split(".")[-2:]) for module in modules})
    peft_settings = {**settings, "target_modules": target_modules}
    return read_method(file.parent, peft_settings, modules, adaptable), adapter_tensors


def map_bottlenecks(
    file: Path,
    adapter_config: Mapping[str, Any],
    method: BottleneckMethod,
    adaptable: AdaptableModel,
    tensors: Mapping[str, Tensor],
) -> dict[str, Tensor]:
    """Return the tensors of all bottlenecks by our names; every one of them belongs to one."""
    our_names = map_names(str(adapter_config.get("name")), method, adaptable)
    # In a class with a head, names begin with the backbone's prefix.
    prefix = adaptable.family.weights(adaptable.config, adaptable.head).prefix or ""
    our_names |= {f"{prefix}{name}": our_name for name, our_name in our_names.items()}
    has_learned_scaling = adapter_config["config"].get("scaling") in LEARNED_SCALING
    adapter_tensors = dict[str, Tensor]()
    factors = dict[str, Tensor]()
    for name, tensor in tensors.items():
        if name.endswith(SCALING) and has_learned_scaling:
            factors[name.removesuffix(SCALING)] = tensor
            continue
        if name not in our_names:
            raise VerificationError(
                f"{file}: {name} does not belong to a bottleneck of {adaptable.family.name}",
                did_you_mean(name, list(our_names)) or "give another base",
            )
        adapter_tensors[our_names[name]] = tensor
    for module, factor in factors.items():
        for parameter in ("weight", "bias"):
            up = our_names.get(f"{module}.adapter_up.{parameter}")
            if up not in adapter_tensors:
                raise VerificationError(
                    f"{file}: {module}{SCALING} does not belong to a bottleneck"
                )
            rows = adapter_tensors[up].shape[0]
            if factor.shape not in ((1,), (rows,)):
                raise VerificationError(
                    f"{file}: {module}{SCALING} has the shape {tuple(factor.shape)}, and a "
                    f"bottleneck of width {rows} has one factor or {rows}",
                    "save the adapter again",
                )
            row_factors = factor[:, None] if parameter == "weight" else factor
            adapter_tensors[up] = adapter_tensors[up] * row_factors
    return adapter_tensors


def map_prefix(
    file: Path,
    adapter_config: Mapping[str, Any],
    method: PrefixTuning,
    adaptable: AdaptableModel,
    tensors: Mapping[str, Tensor],
) -> dict[str, Tensor]:
    """Return the tensors of a prefix by our names.

    ``prefix_tuning.prefix_tunings.<name>.<place>.<tensor>`` belongs to the model, and each layer
    has the same tensor after ``prefix_tuning.pool.``
    """
    infix = f"prefix_tunings.{adapter_config.get('name')}."
    prefix_tensors = dict[str, Tensor]()
    for name, tensor in tensors.items():
        name_in_prefix = name.partition(infix)[2]
        place = next((place for place in SELF_ATTENTION if name_in_prefix.startswith(place)), None)
        if place is None:
            raise VerificationError(
                f"{file}: {name} does not belong to a prefix of self-attention",
                "zoo has no prefix of an encoder with a decoder, and none of cross-attention",
            )
        part = name_in_prefix.removeprefix(place)
        if not torch.equal(prefix_tensors.setdefault(part, tensor), tensor):
            raise VerificationError(
                f"{file}: {name} is not the prefix of the other layers", "save it again"
            )
    owner = prefix_owner(adaptable)
    if "control_trans" in prefix_tensors and prefix_tensors["control_trans"].dim() == 1:
        # The prefix is flat: it has no network.
        flat = prefix_tensors.pop("control_trans")
        if flat.numel() % method.num_virtual_tokens == 0:
            prefix_tensors["wte.weight"] = flat.view(method.num_virtual_tokens, -1)
    adapter_tensors = {}
    for part, tensor in prefix_tensors.items():
        adapter_tensors[f"{owner}adapter.{PREFIX_PARTS.get(part, part)}"] = tensor
    return adapter_tensors


def map_names(name: str, method: BottleneckMethod, adaptable: AdaptableModel) -> dict[str, str]:
    """Return the library's name of each tensor of an adapter -> ours."""
    weights = adaptable.family.weights(adaptable.config, adaptable.head)
    with init_empty_weights():
        model = adaptable.family.model(adaptable.config, adaptable.head)
        method.add_to(model, adaptable)
    model_names = set(model.state_dict())
    our_names = dict[str, str]()
    for site in method.sites(adaptable):
        (part,) = site.parts.values()
        module = weights.written(part.name)
        if not module.endswith(DENSE):
            raise UsageError(
                f"zoo does not know where AdapterHub's library puts adapters of "
                f"{adaptable.family.name}",
                "it reads those of models whose blocks have output.dense",
            )
        our_prefixes = [f"{site.module}.adapter.bottleneck."]
        if not f".{site.module}".endswith(ATTENTION):
            block = site.module.removesuffix(".ffn.down")
            our_prefixes += [f"{block}.ffn_norm.adapter.", f"{block}.ffn.adapter."]
        our_prefix = next(
            prefix for prefix in our_prefixes if f"{prefix}down.weight" in model_names
        )
        hub_prefix = f"{module.removesuffix(DENSE)}{OUTPUT}.adapters.{name}."
        for hub_part, our_part in BOTTLENECK_PARTS.items():
            for parameter in ("weight", "bias"):
                hub_name = f"{hub_prefix}{hub_part}.{parameter}"
                our_names[hub_name] = f"{our_prefix}{our_part}.{parameter}"
    return our_names
