"""Adapters in the layout of AdapterHub's library, and the head of a model class."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import torch
from torch import Tensor

from zoo.adapters.base import AdapterMethod
from zoo.adapters.bottleneck import ATTENTION, BottleneckMethod
from zoo.adapters.houlsby import Houlsby
from zoo.adapters.layers import require_same_tensors
from zoo.adapters.parallel import Parallel
from zoo.adapters.pfeiffer import Pfeiffer
from zoo.adapters.prefix import PrefixTuning
from zoo.adapters.targets import AdaptableModel
from zoo.checkpoint import Checkpoint, SourceRecord
from zoo.conversion.adapter_conversion import (
    AdapterReport,
    adaptable_model,
    map_head,
    read_floats,
    write_read,
)
from zoo.conversion.peft.config import check_types, read_method
from zoo.conversion.peft.layout import ENDINGS, PREFIX
from zoo.conversion.peft.prompts import prefix_owner
from zoo.conversion.peft.read import map_updates
from zoo.conversion.tokenizer import read_own_tokenizer
from zoo.errors import UsageError, VerificationError, did_you_mean
from zoo.families.config import Config
from zoo.hub.select_files import pickle_refused
from zoo.hub.source import CheckpointDir
from zoo.io.digests.files import FileDigest, hash_file
from zoo.io.files import is_named_file
from zoo.io.json import read_json
from zoo.nn.layers.skip_init import init_empty_weights
from zoo.plugins import format_named

CONFIG = "adapter_config.json"
HEAD_CONFIG = "head_config.json"
WEIGHTS = {"adapter.safetensors": "safetensors", "pytorch_adapter.bin": "pytorch"}
HEAD_WEIGHTS = {"model_head.safetensors": "safetensors", "pytorch_model_head.bin": "pytorch"}
# values of the settings that change what a bottleneck computes, in the two forms that are read
SHARED: Mapping[str, Any] = {
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
FORMS: Mapping[type[BottleneckMethod], Mapping[str, Any]] = {
    Houlsby: {**SHARED, "mh_adapter": True, "original_ln_before": False},
    Pfeiffer: {**SHARED, "mh_adapter": False, "original_ln_before": True},
    Parallel: {**SHARED, "mh_adapter": False, "original_ln_before": False, "is_parallel": True},
}
LEARNED = ("learned", "channel")  # values of ``scaling``: a tensor of one factor, or of a row each
OF_METHOD = ("non_linearity", "reduction_factor", "scaling")
# settings of training, and of layers that ``phm_layer`` switches on
UNREAD = frozenset(
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
# what LoRA and (IA)^3 may have; DoRA scales the bias there, and only the product in peft
UPDATES: Mapping[str, tuple[Any, ...]] = {
    "composition_mode": ("add", "scale"),
    "use_dora": (False,),
    "use_gating": (False,),
    "vera_b": (None,),
    "vera_d": (None,),
}
# other settings: what becomes one of peft's, settings of training, and what the tensors say
UPDATES_READ = frozenset(
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
# what prefixes may have
PREFIXES: Mapping[str, Any] = {"leave_out": [], "use_gating": False, "non_linearity": "tanh"}
# their other settings: what is read, of training, and of layers that others switch on
PREFIXES_READ = frozenset(
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
# places of a prefix in self-attention, of a decoder in models that have one
SELF_ATTENTION = ("self_prefix.", "self.")
# tensors of a prefix there -> here
PREFIX_PARTS = {
    "wte.weight": "embedding",
    **{f"control_trans.{k}.{p}": f"transform.{k}.{p}" for k in (0, 2) for p in ("weight", "bias")},
}
SCALING = ".scaling"
DENSE = ".output.dense"
OUTPUT = ".output"
PARTS = {"adapter_down.0": "down", "adapter_up": "up"}


def is_adapterhub(settings: object) -> bool:
    """Return whether the contents of ``adapter_config.json`` are of AdapterHub's library."""
    return isinstance(settings, dict) and isinstance(settings.get("config"), dict)


def read_adapterhub(
    source: Path,
    reference: str,
    base: Checkpoint,
    path: Path,
    *,
    head: str | None = None,
    labels: Sequence[str] | None = None,
    force: bool = False,
    allow_pickle: bool = False,
) -> AdapterReport:
    """Convert an adapter; for the arguments, see ``zoo.conversion.peft.read.read_peft``."""
    # A directory has ``adapter_config.json``, ``pytorch_adapter.bin`` or ``adapter.safetensors``,
    # and for a head ``head_config.json`` and ``pytorch_model_head.bin`` or
    # ``model_head.safetensors``.
    described = read_json(source / CONFIG)
    known = settings_of(source / CONFIG, described["config"])
    files, tensors = read_tensors(source, WEIGHTS, allow_pickle=allow_pickle)
    if not files:
        raise UsageError(f"{source} has neither {' nor '.join(WEIGHTS)}", "save the adapter again")
    of_head: dict[str, Tensor] = {}
    if head != "none":
        head_files, of_head = read_tensors(source, HEAD_WEIGHTS, allow_pickle=allow_pickle)
        if not head_files and is_named_file(source / HEAD_CONFIG):
            raise UsageError(
                f"{source} has {HEAD_CONFIG}, and neither {' nor '.join(HEAD_WEIGHTS)}",
                "save the adapter again, or convert it without its head by --head none",
            )
        files |= head_files
    family = base.family
    head = head or (base.head_name if of_head else "none")
    if head not in family.heads():
        raise UsageError(f"{family.name} has no head {head!r}", "name one with --head")
    flexible = next((name for name in of_head if name.startswith("heads.")), None)
    if flexible is not None:
        raise UsageError(
            f"{source} has a head of the library's own model classes ({flexible}), which no class "
            "of the Hub has",
            "--head none converts the adapter without it",
        )
    config = with_labels(source, base.config, labels) if of_head else base.config
    tokenizer = read_own_tokenizer(CheckpointDir(source, str(source)), base, config)
    adaptable = adaptable_model(family, config, head)
    file = source / next(iter(files))
    if isinstance(known, BottleneckMethod):
        method: AdapterMethod = known
        ours = map_bottlenecks(file, described, known, adaptable, tensors)
    elif isinstance(known, PrefixTuning):
        method = known.resolved(adaptable)
        ours = map_prefix(file, described, known, adaptable, tensors)
    else:
        method, ours = map_as_in_peft(file, described, known, adaptable, tensors)
    whole = map_head(file, base, config, head, of_head)
    require_same_tensors(method, adaptable, ours, file)
    settings = [CONFIG]
    if head != "none" and is_named_file(source / HEAD_CONFIG):
        settings.append(HEAD_CONFIG)
    own_files = () if tokenizer is None else tokenizer.files
    files |= {name: hash_file(source / name) for name in (*settings, *own_files)}
    record = SourceRecord(reference=str(source), format="adapterhub", files=files)
    return write_read(
        path,
        reference,
        base,
        adaptable,
        method,
        ours,
        whole,
        source,
        record,
        read=len(tensors) + len(of_head),
        force=force,
        tokenizer=tokenizer,
    )


def settings_of(
    file: Path, config: Mapping[str, Any]
) -> BottleneckMethod | PrefixTuning | dict[str, Any]:
    """Return the method, or the settings of LoRA and (IA)^3 as peft has them."""
    architecture = config.get("architecture")
    if architecture is None:
        return bottleneck_of(file, config)
    if architecture == "prefix_tuning":
        return prefix_of(file, config)
    if architecture != "lora":
        raise UsageError(
            f"{file}: the adapter is of the architecture {architecture}, and zoo reads "
            "bottlenecks, LoRA, (IA)^3 and prefixes of AdapterHub",
            "its prompts follow the norm of the embeddings, and zoo's precede it, as in peft"
            if architecture == "prompt_tuning"
            else "zoo has no such adapter",
        )
    for name, value in config.items():
        wanted = UPDATES.get(name)
        unknown = wanted is None and name not in UPDATES_READ and value not in (None, False)
        if unknown or (wanted is not None and value not in wanted):
            raise unknown_setting(file, name, value, "zoo has LoRA and (IA)^3 as in peft")
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


def prefix_of(file: Path, config: Mapping[str, Any]) -> PrefixTuning:
    """Return the method of a prefix, all of whose settings are known."""
    flat = config.get("flat", False)
    for name, value in config.items():
        wanted = PREFIXES.get(name)
        unknown = wanted is None and name not in PREFIXES_READ and value not in (None, False)
        unused = name == "non_linearity" and flat
        if unknown or (wanted is not None and value != wanted and not unused):
            raise unknown_setting(file, name, value, "zoo has prefixes as in peft")
    network = {"prefix_projection": True, "encoder_hidden_size": config.get("bottleneck_size", 512)}
    settings = {
        "num_virtual_tokens": config.get("prefix_length", 30),
        "shift_positions": False,
        **({} if flat else network),
    }
    try:
        return msgspec.convert(settings, PrefixTuning)
    except (msgspec.ValidationError, ValueError) as error:
        raise UsageError(f"{file}: {error}", "zoo has no such adapter") from error


def unknown_setting(file: Path, name: str, value: object, hint: str) -> UsageError:
    """Return the error of a setting that would change results."""
    return UsageError(f"{file}: {name} is {value!r:.60}, which zoo's adapters do not have", hint)


def bottleneck_of(file: Path, config: Mapping[str, Any]) -> BottleneckMethod:
    """Return the method of a configuration, all of whose settings are known."""
    problems = dict[str, Any]()
    for kind, wanted in FORMS.items():
        known = {*wanted, *OF_METHOD, *UNREAD, "architecture"}
        wrong = {k: v for k, v in config.items() if k not in known and v not in (None, False)}
        wrong |= {k: config.get(k) for k, v in wanted.items() if config.get(k, v) != v}
        if not wrong:
            settings = {name: config[name] for name in OF_METHOD if name in config}
            try:
                if settings.get("scaling") in LEARNED:
                    settings["scaling"] = 1.0  # ``map_bottlenecks`` multiplies the output layer
                return msgspec.convert(settings, kind)
            except (msgspec.ValidationError, ValueError) as error:
                raise UsageError(f"{file}: {error}", "zoo has no such adapter") from error
        problems = wrong if not problems or len(wrong) < len(problems) else problems
    name, value = next(iter(problems.items()))
    hint = "houlsby is double_seq_bn there, pfeiffer seq_bn, and parallel par_bn"
    raise unknown_setting(file, name, value, hint)


def read_tensors(
    source: Path, names: Mapping[str, str], *, allow_pickle: bool
) -> tuple[dict[str, FileDigest], dict[str, Tensor]]:
    """Return the digest and the tensors of the first of some files that is there."""
    for name, kind in names.items():
        if is_named_file(source / name):
            file_format = format_named(kind)
            if file_format.executable and not allow_pickle:
                raise pickle_refused(str(source), [name])
            with file_format.open(source, [name]) as reader:
                tensors = read_floats(reader, source / name)
            return {name: hash_file(source / name)}, tensors
    return {}, {}


def with_labels(source: Path, config: Config, labels: Sequence[str] | None) -> Config:
    """Return a configuration with the labels of an adapter's head."""
    head_config = read_json(source / HEAD_CONFIG) if is_named_file(source / HEAD_CONFIG) else {}
    ids = head_config.get("label2id") if isinstance(head_config, dict) else None
    if labels is None and isinstance(ids, dict) and ids:
        if sorted(ids.values(), key=str) != sorted(range(len(ids)), key=str):
            raise VerificationError(
                f"{source / HEAD_CONFIG}: label2id is not a numbering", "fix it"
            )
        labels = sorted(ids, key=lambda name: int(ids[name]))
    return config if labels is None else msgspec.structs.replace(config, labels=tuple(labels))


def map_as_in_peft(
    file: Path,
    described: Mapping[str, Any],
    settings: Mapping[str, Any],
    adaptable: AdaptableModel,
    tensors: Mapping[str, Tensor],
) -> tuple[AdapterMethod, dict[str, Tensor]]:
    """Return the method of LoRA or (IA)^3, and its tensors by our names."""
    # ``<module>.loras.<name>.lora_A`` is ``<module>.lora_A.weight`` in peft; the factors of (IA)^3
    # are called lora_B, and are of outputs.
    part = f".loras.{described.get('name')}."
    renamed = dict[str, Tensor]()
    kinds = {"lora_A": "lora_A", "lora_B": "lora_B"}
    if settings["peft_type"] == "IA3":
        kinds = {"lora_B": "ia3_l"}
    weights = adaptable.family.weights(adaptable.config, adaptable.head)
    for name, tensor in tensors.items():
        module, _, kind = name.partition(part)
        if kind not in kinds:
            raise VerificationError(
                f"{file}: {name} is of no {settings['peft_type']} adapter", "save it again"
            )
        whole = weights.prefix + module.removeprefix(weights.prefix)
        renamed[f"{PREFIX}{weights.written(whole)}{ENDINGS[kinds[kind]]}"] = tensor
    ours, modules, _ = map_updates(file, weights, adaptable, renamed)
    listed = sorted({".".join(module.split(".")[-2:]) for module in modules})
    named = {**settings, "target_modules": listed}
    return read_method(file.parent, named, modules, adaptable), ours


def map_bottlenecks(
    file: Path,
    described: Mapping[str, Any],
    method: BottleneckMethod,
    adaptable: AdaptableModel,
    tensors: Mapping[str, Tensor],
) -> dict[str, Tensor]:
    """Return the tensors of all bottlenecks by our names; every one of them belongs to one."""
    places = places_of(str(described.get("name")), method, adaptable)
    # names of a class with a head begin with the backbone's
    prefix = adaptable.family.weights(adaptable.config, adaptable.head).prefix or ""
    places |= {f"{prefix}{name}": ours for name, ours in places.items()}
    ours = dict[str, Tensor]()
    factors = dict[str, Tensor]()
    for name, tensor in tensors.items():
        if name.endswith(SCALING) and described["config"].get("scaling") in LEARNED:
            factors[name.removesuffix(SCALING)] = tensor
            continue
        if name not in places:
            raise VerificationError(
                f"{file}: {name} is of no bottleneck of {adaptable.family.name}",
                did_you_mean(name, list(places)) or "give another base",
            )
        ours[places[name]] = tensor
    for module, factor in factors.items():
        for p in ("weight", "bias"):
            up = places.get(f"{module}.adapter_up.{p}")
            if up not in ours:
                raise VerificationError(f"{file}: {module}{SCALING} is of no bottleneck")
            rows = ours[up].shape[0]
            if factor.shape not in ((1,), (rows,)):
                raise VerificationError(
                    f"{file}: {module}{SCALING} has the shape {tuple(factor.shape)}, and a "
                    f"bottleneck of width {rows} has one factor or {rows}",
                    "save the adapter again",
                )
            ours[up] = ours[up] * (factor[:, None] if p == "weight" else factor)
    return ours


def map_prefix(
    file: Path,
    described: Mapping[str, Any],
    method: PrefixTuning,
    adaptable: AdaptableModel,
    tensors: Mapping[str, Tensor],
) -> dict[str, Tensor]:
    """Return the tensors of a prefix by our names."""
    # ``prefix_tuning.prefix_tunings.<name>.<place>.<tensor>`` is the model's, and each layer has
    # the same tensor after ``prefix_tuning.pool.``
    part = f"prefix_tunings.{described.get('name')}."
    found = dict[str, Tensor]()
    for name, tensor in tensors.items():
        rest = name.partition(part)[2]
        place = next((place for place in SELF_ATTENTION if rest.startswith(place)), None)
        if place is None:
            raise VerificationError(
                f"{file}: {name} is of no prefix of self-attention, such as a decoder's",
                "zoo has no prefix of an encoder with a decoder, and none of cross-attention",
            )
        kind = rest.removeprefix(place)
        if not torch.equal(found.setdefault(kind, tensor), tensor):
            raise VerificationError(
                f"{file}: {name} is not the prefix of the other layers", "save it again"
            )
    owner = prefix_owner(adaptable)
    if "control_trans" in found and found["control_trans"].dim() == 1:  # without a network
        count = method.num_virtual_tokens
        flat = found.pop("control_trans")
        if flat.numel() % count == 0:
            found["wte.weight"] = flat.view(count, -1)
    return {f"{owner}adapter.{PREFIX_PARTS.get(kind, kind)}": t for kind, t in found.items()}


def places_of(name: str, method: BottleneckMethod, adaptable: AdaptableModel) -> dict[str, str]:
    """Return the library's name of each tensor of an adapter -> ours."""
    weights = adaptable.family.weights(adaptable.config, adaptable.head)
    with init_empty_weights():
        model = adaptable.family.model(adaptable.config, adaptable.head)
        method.add_to(model, adaptable)
    own = set(model.state_dict())
    places = dict[str, str]()
    for site in method.sites(adaptable):
        (part,) = site.parts.values()
        module = weights.written(part.name)
        if not module.endswith(DENSE):
            raise UsageError(
                f"zoo does not know where AdapterHub's library puts adapters of "
                f"{adaptable.family.name}",
                "it reads those of models whose blocks have output.dense",
            )
        ends = [f"{site.module}.adapter.bottleneck."]
        if not f".{site.module}".endswith(ATTENTION):
            block = site.module.removesuffix(".ffn.down")
            ends += [f"{block}.ffn_norm.adapter.", f"{block}.ffn.adapter."]
        before = next(end for end in ends if f"{end}down.weight" in own)
        there = f"{module.removesuffix(DENSE)}{OUTPUT}.adapters.{name}."
        for theirs, mine in PARTS.items():
            for p in ("weight", "bias"):
                places[f"{there}{theirs}.{p}"] = f"{before}{mine}.{p}"
    return places
