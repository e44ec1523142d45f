"""Adapters in the layout of peft: read next to their base, and written."""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from torch.nn import functional as F

from zoo.adapters.base import AdapterMethod
from zoo.adapters.checkpoint import (
    AdaptedCheckpoint,
    adapter_file,
    adapter_method_of,
    adapter_record,
    require_finite,
)
from zoo.adapters.dora import DoRA
from zoo.adapters.ia3 import IA3
from zoo.adapters.layers import ADAPTER_PART, add_stored_adapter
from zoo.adapters.lora import LoRA
from zoo.adapters.registry import adapter_settings
from zoo.adapters.targets import WEIGHT, AdaptableModel, Part, Site, as_names, matches
from zoo.adapters.virtual_tokens import VirtualTokens
from zoo.adapters.write import base_record, write_adapter
from zoo.checkpoint import (
    CONFIG,
    FORMAT_VERSION,
    AdapterRecord,
    Checkpoint,
    ModelFile,
    SourceRecord,
)
from zoo.checkpoint.digests import check_digests
from zoo.checkpoint.module_weights import module_weight_files, read_module_weights
from zoo.convert import peft_prompts
from zoo.convert.hub_files import checkpoint_side_files, require_hub_class
from zoo.errors import UsageError, VerificationError, did_you_mean, first_names
from zoo.families.config import Config
from zoo.io.digests.files import hash_file
from zoo.io.digests.self_digest import NO_DIGEST, add_digest
from zoo.io.json import encode_json, read_json
from zoo.io.output.atomic import atomic_directory
from zoo.io.output.overwrite import HUB_RECORD, HubRecord
from zoo.io.tensors.safetensors import SafetensorsReader
from zoo.nn.adapters import DoRAAdapter, IA3Adapter, LinearAdapter, LoRAAdapter
from zoo.nn.layers.skip_init import init_empty_weights
from zoo.plugins.tasks import model_fields
from zoo.tokenizers import read_pooling
from zoo.tokenizers.cross_encoder import (
    PairSettings,
    hub_pair_files,
    read_cross_encoder,
    read_pair_settings,
    score_activation,
)
from zoo.tokenizers.info import TokenizerInfo
from zoo.tokenizers.source_files import SourceFiles
from zoo.version import __version__
from zoo.weights import Transpose, WeightMap
from zoo.weights.names import outermost_parts

if TYPE_CHECKING:
    from zoo.checkpoint.module_weights import ModuleWeights
    from zoo.families.base import Family

PEFT_CONFIG, PEFT_WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
PREFIX = "base_model.model."
# our name of a tensor -> the end of its name in peft
ENDINGS = {
    "lora_A": ".lora_A.weight",
    "lora_B": ".lora_B.weight",
    "lora_magnitude_vector": ".lora_magnitude_vector",
    "ia3_l": ".ia3_l",
}
MATRIX = 2  # number of axes
PLAIN_NAME = re.compile(r"[\w.]+")  # of a module, as a key of rank_pattern
BY_ROW = ("lora_B", "lora_magnitude_vector")  # tensors with the rows of the matrix
TASK_TYPES = {
    "sequence-classification": "SEQ_CLS",
    "token-classification": "TOKEN_CLS",
    "question-answering": "QUESTION_ANS",
    "causal-lm": "CAUSAL_LM",
    "seq2seq-lm": "SEQ_2_SEQ_LM",
    "none": "FEATURE_EXTRACTION",
}
# keys of peft's configuration that say nothing about the values, or what the tensors say as well
UNREAD = frozenset(
    (
        *("revision", "inference_mode", "peft_version", "init_ia3_weights"),
        *("target_modules", "exclude_modules", "modules_to_save", "fan_in_fan_out"),
        *("layers_to_transform", "layers_pattern", "megatron_core", "qalora_group_size"),
    )
)
READ = frozenset(
    (
        *("peft_type", "task_type", "auto_mapping", "base_model_name_or_path"),
        *("r", "lora_alpha", "lora_dropout"),
        *("use_rslora", "use_dora", "bias", "init_lora_weights", "feedforward_modules"),
        *("rank_pattern", "alpha_pattern"),
    )
)
SOUND_INIT = (True, False, None, "gaussian", "eva", "orthogonal")  # of unchanged base weights


@dataclass(frozen=True)
class PeftReport:
    """What was converted."""

    path: Path
    method: str
    tensors: int  # number of tensors of the adapter
    head: list[str]  # modules of the Hub's library that were trained as a whole
    base: str

    def to_dict(self) -> dict[str, Any]:
        """Return the report for JSON."""
        return {**vars(self), "path": str(self.path)}

    def lines(self) -> list[str]:
        """Return the report for a person."""
        head = f", and of the head: {', '.join(self.head)}" if self.head else ""
        return [
            f"{self.method} adapter of {self.base}: {self.tensors} tensors{head}",
            f"wrote {self.path}",
        ]


def adaptable_model(family: "Family", config: Config, head: str) -> AdaptableModel:
    """Return what adapters of a model may change, without the model's weights."""
    with init_empty_weights():
        return AdaptableModel.of(family.model(config, head), family, config, head)


# writing


def write_peft(checkpoint: AdaptedCheckpoint, path: Path, *, force: bool = False) -> PeftReport:
    """Write an adapter so that peft opens it."""
    (adapter,) = checkpoint.adapters
    method, weights = adapter_method_of(adapter), checkpoint.weights
    adaptable = adaptable_model(checkpoint.family, checkpoint.config, checkpoint.head_name)
    settings, architecture = peft_config(method, adaptable), hub_class(checkpoint)
    check_digests(adapter.path)
    tensors, whole, virtual = dict[str, Tensor](), list[str](), dict[str, Tensor]()
    is_virtual = isinstance(method, VirtualTokens)
    sites = {site.module: site for site in adaptable.sites}
    stored = load_file(adapter_file(adapter))
    require_finite(stored, adapter_file(adapter))
    places = {entry.target: entry.shape for entry in weights.entries()}
    own = {name: tensor for name, tensor in stored.items() if places.get(name) != tensor.shape}
    check_tensors(method, adaptable, own, adapter_file(adapter))
    for name, tensor in stored.items():
        module, is_adapter, rest = f".{name}".partition(ADAPTER_PART)
        if is_adapter and is_virtual:
            virtual[rest] = tensor
        elif is_adapter:
            site = sites[module.removeprefix(".")]
            kind, _, number = rest.rpartition(".")
            part = site.parts[number]
            key = f"{PREFIX}{weights.written(hub_module(part, adapter))}{ENDINGS[kind]}"
            tensors[key] = rows_to_hub(site, kind, tensor)
        else:
            whole.append(name)
            before = peft_prompts.PREFIX if is_virtual else PREFIX
            tensors |= head_to_hub(weights, name, tensor, before)
    if isinstance(method, VirtualTokens):
        tensors[peft_prompts.PROMPTS] = peft_prompts.prompts_to_hub(method, adaptable, virtual)
    modules = saved_modules(weights, whole)
    base = adapter_record(adapter).base
    reference = base.source.repo if base.source and base.source.repo else base.reference
    task = TASK_TYPES.get(checkpoint.head_name)
    # peft names the class of models that none of its tasks is for
    auto_mapping = {"base_model_class": architecture, "parent_library": "transformers"}
    described = {
        **settings,
        "base_model_name_or_path": reference,
        "task_type": task,
        "auto_mapping": None if task else auto_mapping,
        "modules_to_save": modules or None,
    }
    sources = [checkpoint.base.path, adapter.path]
    with atomic_directory(path, force=force, sources=sources) as staging:
        save_file({k: t.contiguous() for k, t in tensors.items()}, staging / PEFT_WEIGHTS)
        (staging / PEFT_CONFIG).write_bytes(encode_json(described))
        for name, content in side_files(checkpoint, architecture).items():
            (staging / name).parent.mkdir(exist_ok=True)
            (staging / name).write_bytes(content)
        record = HubRecord(
            zoo=FORMAT_VERSION,
            created_by={"plm-zoo": __version__},
            files={
                file.relative_to(staging).as_posix(): hash_file(file)
                for file in sorted(staging.rglob("*"))
                if file.is_file()
            },
            digest=NO_DIGEST,
        )
        (staging / HUB_RECORD).write_bytes(add_digest(encode_json(record)))
    return PeftReport(path, method.name, len(tensors), modules, reference)


def side_files(checkpoint: AdaptedCheckpoint, architecture: str) -> dict[str, bytes]:
    """Return the files next to an adapter: of labels, or of sentence-transformers."""
    model, config_file = checkpoint.model, checkpoint.family.config_files[0]
    files = checkpoint_side_files(checkpoint, dtype="float32", architecture=architecture)
    labels = files.pop(config_file)
    if model.score_activation is not None:
        files |= hub_pair_files(model.pairs or PairSettings(), model.score_activation)
    elif model.pooling is None:
        # next to it, transformers does not look for the base, but for the weights of a whole model
        has_labels = checkpoint.family.heads()[checkpoint.head_name].has_labels
        return {config_file: labels} if has_labels else {}
    return files


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


def rows_to_hub(site: Site, kind: str, tensor: Tensor) -> Tensor:
    """Return a tensor of an adapter with the rows of the Hub's matrix."""
    if kind in BY_ROW or (kind == "ia3_l" and tensor.shape[1] == 1):
        return torch.from_numpy(site.entry.op.rows_to_hub(tensor.numpy()).copy())
    return tensor


def rows_from_hub(site: Site, kind: str, tensor: Tensor) -> Tensor:
    """Return a tensor of an adapter with the rows of our matrix."""
    if kind in BY_ROW or (kind == "ia3_l" and tensor.shape[1] == 1):
        return torch.from_numpy(site.entry.op.rows_from_hub(tensor.numpy()).copy())
    return tensor


def head_to_hub(weights: WeightMap, name: str, tensor: Tensor, before: str) -> dict[str, Tensor]:
    """Return the Hub's tensors of one that was trained as a whole, with a prefix of names."""
    entry = next(entry for entry in weights.entries() if entry.target == name)
    parts = entry.op.to_hub(tensor.numpy())
    return {
        f"{before}{weights.written(source)}": torch.from_numpy(part.copy())
        for source, part in zip(entry.sources, parts, strict=True)
    }


def saved_modules(weights: WeightMap, whole: Sequence[str]) -> list[str]:
    """Return the outermost modules of the Hub's library that hold only these tensors of ours."""
    by_target = {entry.target: entry.sources for entry in weights.entries()}
    inside = [source for name in whole for source in by_target[name]]
    others = [
        source for name, sources in by_target.items() if name not in whole for source in sources
    ]
    return [weights.written(name) for name in outermost_parts(inside, others)]


def peft_config(method: AdapterMethod, adaptable: AdaptableModel) -> dict[str, Any]:
    """Return the keys of peft's configuration for a method."""
    shared = {"inference_mode": True}
    if isinstance(method, LoRA):
        targets = exact_targets(as_names(method.target_modules), adaptable)
        return {
            **shared,
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
        targets = exact_targets(as_names(method.target_modules), adaptable)
        return {
            **shared,
            "peft_type": "IA3",
            "target_modules": targets,
            "feedforward_modules": exact_targets(method.feedforward_modules or (), adaptable),
            "fan_in_fan_out": is_transposed(targets, adaptable),
        }
    if isinstance(method, VirtualTokens):
        return {**shared, **peft_prompts.prompts_config(method, adaptable)}
    raise UsageError(
        f"peft has no adapter of the method {method.name}", "`zoo run` applies it with --adapter"
    )


def exact_targets(targets: Sequence[str], adaptable: AdaptableModel) -> list[str]:
    """Return targets that mean the same modules in peft, which also looks into the head."""
    if not targets:
        return []
    weights = adaptable.family.weights(adaptable.config, adaptable.head)
    wanted = {p.name for site in adaptable.sites_of(targets) for p in site.parts.values()}
    every = {
        source.removesuffix(WEIGHT)
        for entry in weights.entries()
        for source in entry.sources
        if source.endswith(WEIGHT)
    }
    if {name for name in every if any(matches(name, target) for target in targets)} == wanted:
        return [weights.written(target) for target in targets]
    return sorted(weights.written(name) for name in wanted)


def is_transposed(targets: Sequence[str], adaptable: AdaptableModel) -> bool:
    """Return whether the Hub's matrices are (in, out)."""
    return any(
        isinstance(site.entry.op, Transpose)
        for site in adaptable.sites
        for part in site.parts.values()
        if any(matches(part.name, target) for target in targets)
    )


# reading


def read_peft(
    source: Path,
    reference: str,
    base: Checkpoint,
    path: Path,
    *,
    head: str | None = None,
    labels: Sequence[str] | None = None,
    force: bool = False,
) -> PeftReport:
    """Convert an adapter of peft."""
    settings = read_peft_config(source)
    file = source / PEFT_WEIGHTS
    if not file.is_file():
        raise UsageError(
            f"{source} has no {PEFT_WEIGHTS}", "save it with safe_serialization=True in peft"
        )
    with SafetensorsReader([file]):  # checks the header
        tensors = load_file(file)
    require_finite(tensors, file)
    family = base.family
    head = head or head_of(settings, base)
    if head not in family.heads():
        raise UsageError(f"{family.name} has no head {head!r}", "name one with --head")
    config = with_head_labels(source, base, head, tensors, labels)
    weights, adaptable = family.weights(config, head), adaptable_model(family, config, head)
    if not peft_prompts.is_prompt(settings):
        settings, tensors = with_one_rank(source / PEFT_CONFIG, settings, tensors)
        tensors = with_whole_modules(file, settings, base, adaptable, tensors)
    method, ours, rest = map_adapter(source, settings, weights, adaptable, tensors)
    whole = map_head(file, base, config, head, rest)
    check_tensors(method, adaptable, ours, file)
    sentence, modules, names = sentence_fields(source, base, config, head)
    digests = {name: hash_file(source / name) for name in (PEFT_CONFIG, PEFT_WEIGHTS, *names)}
    record = SourceRecord(reference=str(source), format="peft", files=digests)
    write_read(
        path,
        reference,
        base,
        adaptable,
        method,
        {**ours, **whole},
        source,
        record,
        force=force,
        sentence=sentence,
        modules=modules,
    )
    return PeftReport(
        path, method.name, len(tensors), saved_modules(weights, list(whole)), reference
    )


def write_read(
    path: Path,
    reference: str,
    base: Checkpoint,
    adaptable: AdaptableModel,
    method: AdapterMethod,
    tensors: Mapping[str, Tensor],
    source: Path,
    record: SourceRecord,
    *,
    force: bool,
    sentence: Mapping[str, Any] | None = None,
    modules: "ModuleWeights | None" = None,
) -> None:
    """Write an adapter that was read from the files of another library."""
    # sentence: fields of ``config.json`` about sentence encoders and cross-encoders; ``None`` for
    # the base's; modules: weights of its modules, ``None`` for the base's
    config, head = adaptable.config, adaptable.head
    same_head = head == base.head_name
    if sentence is None:
        sentence = sentence_fields_of(base) if same_head else {}
    model = ModelFile(
        zoo=FORMAT_VERSION,
        family=base.family.name,
        head=head,
        config=msgspec.to_builtins(config),
        tokenizer=shortened_tokenizer(base, method, config, head),
        generation=base.model.generation if same_head else {},
        **sentence,
    )
    write_adapter(
        path,
        model,
        tensors,
        AdapterRecord(settings=adapter_settings(method), base=base_record(reference, base)),
        sources=[source, base.path],
        force=force,
        source=record,
        modules=modules,
    )


def sentence_fields_of(base: Checkpoint) -> dict[str, Any]:
    """Return the fields of ``config.json`` about sentence encoders and cross-encoders of a base."""
    model = base.model
    fields = {"score_activation": model.score_activation, "pairs": model.pairs}
    return {"pooling": model.pooling, **fields}


def sentence_fields(
    source: Path, base: Checkpoint, config: Config, head: str
) -> "tuple[dict[str, Any] | None, ModuleWeights | None, list[str]]":
    """Return these fields and the weights of modules by the files next to an adapter."""
    # and the names of the files; ``None`` without files, as of adapters that peft itself wrote
    files, family = SourceFiles(source), base.family
    config_file = family.config_files[0]
    extra: dict[str, Any] = {}
    if files.has(config_file):
        extra |= family.from_hub(files.json(config_file), str(source / config_file)).extra
    extra |= read_cross_encoder(files)
    pooling = family.sentence_settings(extra, read_pooling(files), str(source / config_file))
    activation = pairs = None
    if len(getattr(config, "labels", ())) == 1 and "classify" in family.heads()[head].tasks:
        activation = score_activation(extra, str(source / config_file))
        pairs = read_pair_settings(files) if activation else None
    if pooling is None and activation is None:
        return None, None, []
    fields = {"pooling": pooling, "score_activation": activation, "pairs": pairs}
    names = [*sorted(files.names_read), *module_weight_files(pooling)]
    return fields, read_module_weights(source, pooling), names


def shortened_tokenizer(
    base: Checkpoint, method: AdapterMethod, config: Config, head: str
) -> TokenizerInfo | None:
    """Return the properties of the base's tokenizer, with the longest text next to an adapter."""
    info, before = base.model.tokenizer, base.family.onnx(config, head).limits
    limits = method.shortened(before)
    if info is None or limits == before or "tokens" not in limits:
        return info
    longest = min(limits["tokens"], info.max_tokens or limits["tokens"])
    return msgspec.structs.replace(info, max_tokens=longest)


def read_peft_config(source: Path) -> dict[str, Any]:
    """Read ``adapter_config.json``, and refuse what would change the results unseen."""
    file = source / PEFT_CONFIG
    settings = read_json(file)
    if not isinstance(settings, dict) or not isinstance(settings.get("peft_type"), str):
        raise VerificationError(f"{file} names no peft_type", "save the adapter again with peft")
    if settings["peft_type"] not in ("LORA", "IA3", *peft_prompts.TYPES):
        raise UsageError(
            f"{file}: the adapter is of the type {settings['peft_type']}, which zoo does not read",
            "merge the adapter in peft, and convert the model",
        )
    for key, value in settings.items():
        known = READ | UNREAD
        if peft_prompts.is_prompt(settings):
            known |= peft_prompts.READ | peft_prompts.UNREAD
        if value and key not in known:
            raise UsageError(
                f"{file}: {key} is {value!r:.60}, which zoo does not read",
                "merge the adapter in peft, and convert the model",
            )
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


def head_of(settings: Mapping[str, Any], base: Checkpoint) -> str:
    """Return the head of peft's task type, of its class of models, or the base's."""
    heads = {task: name for name, task in TASK_TYPES.items()}
    mapping = settings.get("auto_mapping")
    if isinstance(mapping, dict):
        named = mapping.get("base_model_class")
        same = [name for name, head in base.family.heads().items() if named in head.architectures]
        heads["None"] = base.head_name if base.head_name in same or not same else same[0]
    return heads.get(str(settings.get("task_type")), base.head_name)


def with_head_labels(
    source: Path,
    base: Checkpoint,
    head: str,
    tensors: Mapping[str, Tensor],
    labels: Sequence[str] | None,
) -> Config:
    """Return the base's configuration with the labels of the adapter's head."""
    family, config = base.family, base.config
    if not family.heads()[head].has_labels:
        return config
    if labels is None and (source / CONFIG).is_file():  # written by ``zoo convert --to hub``
        described = family.from_hub(read_json(source / CONFIG), str(source / CONFIG)).config
        return msgspec.structs.replace(
            config, labels=described.labels, problem=getattr(described, "problem", None)
        )
    if labels is not None:
        return msgspec.structs.replace(config, labels=tuple(labels))
    shapes = {
        name.removeprefix(PREFIX).removeprefix(peft_prompts.PREFIX): tuple(tensor.shape)
        for name, tensor in tensors.items()
    }
    counts = dict.fromkeys((len(config.labels), *(s[0] for s in shapes.values() if s)))
    for count in counts:
        names = config.labels
        if count != len(names):
            names = tuple(f"LABEL_{number}" for number in range(count))
        candidate = msgspec.structs.replace(config, labels=names)
        if fits(family.weights(candidate, head), shapes):
            return candidate
    return config


def fits(weights: WeightMap, shapes: Mapping[str, tuple[int, ...]]) -> bool:
    """Return whether tensors that were trained as a whole have the shapes of the rules."""
    wanted = {
        weights.written(source): shape
        for entry in weights.entries()
        for source, shape in zip(entry.sources, entry.source_shapes, strict=True)
    }
    return not any(wanted[name] != shape for name, shape in shapes.items() if name in wanted)


def map_adapter(
    source: Path,
    settings: Mapping[str, Any],
    weights: WeightMap,
    adaptable: AdaptableModel,
    tensors: Mapping[str, Tensor],
) -> tuple[AdapterMethod, dict[str, Tensor], dict[str, Tensor]]:
    """Return the method, its tensors by our names, and the other tensors by the Hub's."""
    file = source / PEFT_WEIGHTS
    if not peft_prompts.is_prompt(settings):
        ours, names, rest = map_updates(file, weights, adaptable, tensors)
        return method_of(source, settings, names, adaptable, weights), ours, rest
    rest = {name.removeprefix(peft_prompts.PREFIX): tensor for name, tensor in tensors.items()}
    prompts = rest.pop(peft_prompts.PROMPTS, None)
    if prompts is None or prompts.dim() != MATRIX:
        raise VerificationError(
            f"{file} has no matrix {peft_prompts.PROMPTS}", "save it again with peft"
        )
    method, ours = peft_prompts.prompts_from_hub(
        source / PEFT_CONFIG, settings, adaptable, prompts.float()
    )
    return method, ours, rest


def with_one_rank(
    file: Path, settings: dict[str, Any], tensors: dict[str, Tensor]
) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Return settings and tensors of the same updates without patterns of rank and alpha."""
    # All have the largest rank, by rows and columns of zeros, and B has the ratio of the factors.
    try:
        ranks = msgspec.convert(settings.get("rank_pattern") or {}, dict[str, int])
        alphas = msgspec.convert(settings.get("alpha_pattern") or {}, dict[str, float])
        usual = msgspec.convert(settings.get("lora_alpha", 8), float) or 1.0
    except msgspec.ValidationError as error:
        raise VerificationError(f"{file}: rank or alpha: {error}", "correct it") from error
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
    a, b = ENDINGS["lora_A"], ENDINGS["lora_B"]
    modules = [n.removesuffix(a) for n in tensors if n.endswith(a)]
    most = max((len(tensors[module + a]) for module in modules), default=1)
    changed = dict(tensors)
    for module in modules:
        if module + b not in tensors:
            continue  # the account of tensors says so
        rank = len(tensors[module + a])
        told = next((r for name, r in ranks.items() if matches(module, name)), settings.get("r", 8))
        if rank != told or not rank:
            raise VerificationError(
                f"{file}: the rank of {module} is {told}, and its tensors have {rank}", "correct it"
            )
        alpha = next((value for name, value in alphas.items() if matches(module, name)), usual)
        factor = alpha / usual * (most / rank) ** power
        changed[module + a] = F.pad(tensors[module + a], (0, 0, 0, most - rank))
        changed[module + b] = F.pad(tensors[module + b].float() * factor, (0, most - rank))
    return {**settings, "r": most}, changed


def with_whole_modules(
    file: Path,
    settings: Mapping[str, Any],
    base: Checkpoint,
    adaptable: AdaptableModel,
    tensors: Mapping[str, Tensor],
) -> dict[str, Tensor]:
    """Return tensors in which modules that are only trained as a whole have no updates."""
    # of heads and poolers: the update is merged into the weight of the base
    weights = adaptable.family.weights(adaptable.config, adaptable.head)
    sites = {weights.written(name) for name in adaptable.names}
    modules = {weights.written(source) for e in weights.entries() for source in e.sources}
    whole = {name.removesuffix(WEIGHT) for name in modules} - sites
    updates, changed = dict[str, dict[str, Tensor]](), dict(tensors)
    for kind, end in ENDINGS.items():
        for key in [key for key in tensors if key.endswith(end)]:
            module = key.removeprefix(PREFIX).removesuffix(end)
            if module in whole:
                updates.setdefault(module, {})[f"{kind}.0"] = changed.pop(key).float()
    if not updates:
        return changed
    stored = weights_of(base, adaptable, updates)
    for module, update in updates.items():
        weight, bias = (stored.get(f"{module}.{p}") for p in ("weight", "bias"))
        if weight is None or weight.dim() != MATRIX:
            raise VerificationError(
                f"{file}: it changes {module}, which is not a matrix of {base.path}",
                "give the base that it was trained from",
            )
        layer = layer_of(settings, update, weight)
        shapes = {name: tensor.shape for name, tensor in layer.state_dict().items()}
        if {name: tensor.shape for name, tensor in update.items()} != shapes:
            raise VerificationError(
                f"{file}: the tensors of {module} do not match its settings", "save it again"
            )
        layer.load_state_dict(update)
        merged = layer.requires_grad_(False).merge(weight, bias)
        for p, tensor in zip(("weight", "bias"), merged, strict=True):
            if tensor is not None:
                changed[f"{PREFIX}{module}.{p}"] = tensor
    return changed


def weights_of(
    base: Checkpoint, adaptable: AdaptableModel, modules: Collection[str]
) -> dict[str, Tensor]:
    """Return the parameters of modules of the Hub's library as far as a base has them."""
    weights = adaptable.family.weights(adaptable.config, adaptable.head)
    entries = {entry.target: entry for entry in weights.entries()}
    base.require_unchanged()
    found = dict[str, Tensor]()
    with base.open_weights() as reader:
        for name, target in base.sources_in(adaptable.config, adaptable.head).items():
            sources = [weights.written(source) for source in entries[target].sources]
            if name in reader.tensors and sources[0].rpartition(".")[0] in modules:
                arrays = entries[target].op.to_hub(reader.read(name))
                tensors = (torch.from_numpy(array.astype("float32")) for array in arrays)
                found |= zip(sources, tensors, strict=True)
    return found


def layer_of(
    settings: Mapping[str, Any], update: Mapping[str, Tensor], weight: Tensor
) -> LinearAdapter:
    """Return the layer of an update of a matrix, (out, in), without its values."""
    size, width = weight.shape
    rows = {"0": range(size)}
    if "ia3_l.0" in update:
        return IA3Adapter(rows, size, width, scales_input=update["ia3_l.0"].shape == (1, width))
    method = LoRA(
        rank=int(settings.get("r", 8)),
        alpha=float(settings.get("lora_alpha", 8)),
        use_rslora=bool(settings.get("use_rslora", False)),
    )
    kind = DoRAAdapter if settings.get("use_dora") else LoRAAdapter
    return kind(rows, size, width, rank=method.rank, scaling=method.scaling)


def map_updates(
    file: Path, weights: WeightMap, adaptable: AdaptableModel, tensors: Mapping[str, Tensor]
) -> tuple[dict[str, Tensor], set[str], dict[str, Tensor]]:
    """Return the tensors of updates by our names, their modules, and the other tensors."""
    # Each tensor of peft belongs to a module of the Hub's library, whose weight a rule of the
    # family maps to one of ours, or to rows of one. Updates of rows map like the rows.
    #
    # The other tensors have the Hub's names.
    places = {
        weights.written(part.name): (site, number, part.name)
        for site in adaptable.sites
        for number, part in site.parts.items()
        if part.in_hub
    }
    ours, names, rest = dict[str, Tensor](), set[str](), dict[str, Tensor]()
    for key, tensor in tensors.items():
        name = key.removeprefix(PREFIX)
        kind = next((kind for kind, end in ENDINGS.items() if name.endswith(end)), None)
        if not key.startswith(PREFIX) or kind is None:
            rest[name if key.startswith(PREFIX) else key] = tensor
            continue
        module = name.removesuffix(ENDINGS[kind])
        if module not in places:
            raise VerificationError(
                f"{file}: {key} is of {module}, which is not a linear map of "
                f"{adaptable.family.name} with the head {adaptable.head}",
                did_you_mean(module, list(places)) or "name the head with --head",
            )
        site, number, target = places[module]
        names.add(target)
        ours[f"{site.module}{ADAPTER_PART}{kind}.{number}"] = rows_from_hub(
            site, kind, tensor.float()
        )
    return ours, names, rest


def map_head(
    file: Path, base: Checkpoint, config: Config, head: str, tensors: Mapping[str, Tensor]
) -> dict[str, Tensor]:
    """Return the tensors that were trained as a whole by our names."""
    # Every one of them is used, and the model has no tensor that neither they nor the base have.
    weights, left = base.family.weights(config, head), dict(tensors)
    whole = {}
    for entry in weights.entries():
        names = [weights.written(source) for source in entry.sources]
        if left.keys() >= set(names):
            arrays = [left.pop(name).float().numpy() for name in names]
            found = tuple(array.shape for array in arrays)
            if found != entry.source_shapes:
                raise VerificationError(
                    f"{file}: {names[0]} is of shape {found[0]}, not {entry.source_shapes[0]}",
                    "give other --labels, or another base",
                )
            whole[entry.target] = torch.from_numpy(entry.op.from_hub(arrays, entry.shape).copy())
    if left:
        raise VerificationError(
            f"{file}: unknown tensors: {first_names(sorted(left))}", "name the head with --head"
        )
    given = {*whole, *base.sources_in(config, head).values()}
    if missing := [e.target for e in weights.entries() if e.target not in given]:
        listed = first_names(sorted(missing))
        raise VerificationError(
            f"{file}: neither it nor {base.path} has {listed} of the head {head}",
            "name another head with --head",
        )
    return whole


def method_of(
    source: Path,
    settings: Mapping[str, Any],
    names: Iterable[str],
    adaptable: AdaptableModel,
    weights: WeightMap,
) -> AdapterMethod:
    """Return the method of peft's configuration for the modules that have tensors."""
    wanted = set(names)
    if not wanted:
        raise UsageError(
            f"{source} only changes heads and poolers, which zoo's adapters train as a whole",
            "merge the adapter in peft, and convert the model",
        )
    listed = settings.get("target_modules")
    # peft also lists modules of a head that is trained as a whole
    known = adaptable.names
    targets = [
        target
        for target in (listed if isinstance(listed, list) else ())
        if any(matches(name, target) for name in known)
    ]
    named = {p.name for site in adaptable.sites_of(targets) for p in site.parts.values()}
    chosen = tuple(sorted(targets if named == wanted else wanted))
    try:
        if settings["peft_type"] == "LORA":
            method: type[LoRA] = DoRA if settings.get("use_dora") else LoRA
            return method(
                rank=int(settings.get("r", 8)),
                alpha=float(settings.get("lora_alpha", 8)),
                dropout=float(settings.get("lora_dropout", 0.0)),
                use_rslora=bool(settings.get("use_rslora", False)),
                target_modules=chosen,
            )
        inputs = settings.get("feedforward_modules") or ()
        inner = [
            name
            for name in wanted
            if any(matches(weights.written(name), target) for target in inputs)
        ]
        if named == wanted and set(inputs) <= set(chosen):
            return IA3(target_modules=chosen, feedforward_modules=tuple(sorted(inputs)))
        return IA3(target_modules=tuple(sorted(wanted)), feedforward_modules=tuple(sorted(inner)))
    except (TypeError, ValueError) as error:
        raise VerificationError(f"{source / PEFT_CONFIG}: {error}", "correct it") from error


def check_tensors(
    method: AdapterMethod, adaptable: AdaptableModel, tensors: Mapping[str, Tensor], file: Path
) -> None:
    """Check that the tensors are all that the method has, in their shapes."""
    with init_empty_weights():
        model = adaptable.family.model(adaptable.config, adaptable.head)
        add_stored_adapter(method, model, adaptable, tensors, file)
