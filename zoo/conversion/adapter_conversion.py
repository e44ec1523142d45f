"""What conversions of adapters share: mapped tensors, the directory, the report."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from zoo.adapters.base import AdapterMethod
from zoo.adapters.checkpoint import require_finite_tensors
from zoo.adapters.layers import adapted_modules, add_stored_adapter
from zoo.adapters.registry import adapter_settings
from zoo.adapters.targets import AdaptableModel
from zoo.adapters.write import base_record, write_adapter
from zoo.checkpoint import FORMAT_VERSION, AdapterRecord, Checkpoint, ModelFile, SourceRecord
from zoo.conversion.dtypes import cast, numpy_dtype
from zoo.conversion.tokenizer import SourceTokenizer
from zoo.conversion.unread_files import find_unread_files
from zoo.errors import VerificationError, first_names
from zoo.families.config import Config
from zoo.families.vocabulary import vocabulary_tensors
from zoo.hub.source import CheckpointDir
from zoo.io.tensors.finite import require_finite
from zoo.io.tensors.formats import DTYPE_NAMES, FLOAT_DTYPES, TensorReader
from zoo.nn.adapters import Bottleneck
from zoo.nn.adapters.prefix import PrefixEncoder
from zoo.nn.layers.skip_init import init_empty_weights
from zoo.tokenizers.info import TokenizerInfo
from zoo.weights import WeightMap
from zoo.weights.names import outermost_parts

if TYPE_CHECKING:
    from zoo.families.base import Family
    from zoo.sentence_models.module_weights import ModuleWeights


@dataclass(frozen=True)
class AdapterReport:
    """What was converted."""

    path: Path
    method: str
    tensors: int  # number of tensors of the adapter
    head: list[str]  # modules of the Hub's library that were trained as a whole
    base: str
    # file with weights or labels that was not read -> the reason
    unread_files: Mapping[str, str] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Return the report for JSON."""
        return {**vars(self), "path": str(self.path)}

    def lines(self) -> list[str]:
        """Return the report for a person."""
        head = f", and of the head: {', '.join(self.head)}" if self.head else ""
        return [
            f"{self.method} adapter of {self.base}: {self.tensors} tensors{head}",
            *(f"not read: {name}: {reason}" for name, reason in self.unread_files.items()),
            f"wrote {self.path}",
        ]


def adaptable_model(family: "Family", config: Config, head: str) -> AdaptableModel:
    """Return what adapters of a model may change, without the model's weights."""
    with init_empty_weights():
        return AdaptableModel.from_model(family.model(config, head), family, config, head)


def read_floats(reader: TensorReader, file: Path) -> dict[str, Tensor]:
    """Return all tensors of an adapter's file, in float32."""
    tensors = dict[str, Tensor]()
    for name, info in reader.tensors.items():
        dtype = DTYPE_NAMES[info.dtype]
        if dtype not in FLOAT_DTYPES:
            raise VerificationError(
                f"{file}: {name} is of the dtype {dtype}, and the tensors of an adapter are "
                f"{', '.join(FLOAT_DTYPES)}",
                "save it in one of these",
            )
        if not info.shape or 0 in info.shape:
            raise VerificationError(
                f"{file}: {name} has the shape {info.shape}, which holds no vector or matrix",
                "save the adapter again",
            )
        array = reader.read(name).view(numpy_dtype(info.dtype))
        with np.errstate(over="ignore"):  # require_finite_tensors reports it
            tensors[name] = torch.from_numpy(array.astype(np.float32))
    require_finite_tensors(tensors, file)
    return tensors


def require_finite_effect(
    method: AdapterMethod,
    adaptable: AdaptableModel,
    tensors: Mapping[str, Tensor],
    base: Checkpoint,
    file: Path,
) -> None:
    """Check that a base has finite weights with an adapter, whose factors may be too large.

    The tensors of the adapter are finite themselves.
    """
    with init_empty_weights():
        model = adaptable.family.model(adaptable.config, adaptable.head)
        add_stored_adapter(method, model, adaptable, tensors, file)
    adapters = {name: adapter for name, _, adapter in adapted_modules(model) if adapter.can_merge}
    hint = "its scaling, alpha or rank do not belong to these tensors: correct its settings"
    weights = (f"{name}.weight" for name in adapters)
    for name, array in iter_base_tensors(base, adaptable.config, adaptable.head, set(weights)):
        require_finite({name: array}, base.path, "give a base whose weights are finite")
        merged, _ = adapters[name.removesuffix(".weight")].merge(
            torch.from_numpy(array.copy()), None
        )
        require_finite({f"{name} of the base, with the adapter,": merged}, file, hint)
    for name, module in model.named_modules():
        if isinstance(module, Bottleneck):
            for key, tensor in module.up.state_dict().items():
                require_finite({f"{name}.up.{key}, scaled,": tensor * module.scaling}, file, hint)
        elif isinstance(module, PrefixEncoder):
            require_finite({f"{name}, as keys and values,": module.flat()}, file, hint)


def iter_base_tensors(
    base: Checkpoint, config: Config, head: str, names: Collection[str]
) -> Iterator[tuple[str, NDArray[np.float32]]]:
    """Yield tensors that a base has, in float32, by their names in a model with a head."""
    base.require_unchanged()
    with base.open_weights() as reader:
        for stored_name, name in base.sources_in(config, head).items():
            if name in names and stored_name in reader.tensors:
                code = reader.tensors[stored_name].dtype
                array = cast(reader.read(stored_name), code, "F32", stored_name)
                yield name, array.view(np.float32)


def read_base_tensors(
    base: Checkpoint, config: Config, head: str, names: Collection[str]
) -> dict[str, NDArray[np.float32]]:
    """Return tensors that a base has, in float32, by their names in a model with a head."""
    return dict(iter_base_tensors(base, config, head, names))


def saved_modules(weights: WeightMap, whole: Sequence[str]) -> list[str]:
    """Return the outermost modules of the Hub's library that hold only these tensors of ours."""
    by_target = {entry.target: entry.sources for entry in weights.entries()}
    inside = [source for name in whole for source in by_target[name]]
    others = [
        source for name, sources in by_target.items() if name not in whole for source in sources
    ]
    return [weights.written(name) for name in outermost_parts(inside, others)]


def token_axes(base: Checkpoint, config: Config, head: str) -> dict[str, int]:
    """Return name -> axis of the tokens, of each tensor of a model with a row for each of them."""
    if base.family.text_tokenizer(config) is not None:
        return {}
    return vocabulary_tensors(base.family, config, head)


def with_saved_rows(
    base: Checkpoint, config: Config, head: str, tensors: Mapping[str, Tensor]
) -> Config:
    """Return a configuration with as many tokens as the embeddings that an adapter holds."""
    weights = base.family.weights(config, head)
    axes = token_axes(base, config, head)
    sizes = set()
    for entry in weights.entries():
        saved = tensors.get(weights.written(entry.sources[0]))
        axis = axes.get(entry.target)
        if saved is not None and axis is not None and saved.dim() == len(entry.shape):
            sizes.add(saved.shape[axis])
    if len(sizes) != 1:
        return config
    return msgspec.structs.replace(config, vocab_size=sizes.pop())


def adopt_tied_rows(weights: WeightMap, tensors: dict[str, Tensor]) -> None:
    """Give tensors of a new vocabulary that are saved by a tied name the name of their owner."""
    for alias, owner in weights.aliases().items():
        name = weights.written(owner)
        if name not in tensors and weights.written(alias) in tensors:
            tensors[name] = tensors.pop(weights.written(alias))


def map_head(
    file: Path, base: Checkpoint, config: Config, head: str, tensors: Mapping[str, Tensor]
) -> dict[str, Tensor]:
    """Return the tensors that were trained as a whole by our names."""
    # Every one of them is used, and the model has no tensor that neither they nor the base have.
    weights = base.family.weights(config, head)
    left = dict(tensors)
    of_tokens = token_axes(base, config, head)
    has_new_rows = bool(of_tokens) and config.vocab_size != base.config.vocab_size
    if has_new_rows:
        adopt_tied_rows(weights, left)
    whole = {}
    for entry in weights.entries():
        names = [weights.written(source) for source in entry.sources]
        if left.keys() >= set(names):
            arrays = [left.pop(name).float().numpy() for name in names]
            found = tuple(array.shape for array in arrays)
            if found != entry.source_shapes:
                raise VerificationError(
                    f"{file}: {names[0]} is of shape {found[0]}, not {entry.source_shapes[0]}",
                    "give other --labels, or another base"
                    if entry.target not in of_tokens
                    else "give the base that it was trained from",
                )
            whole[entry.target] = torch.from_numpy(entry.op.from_hub(arrays, entry.shape).copy())
    drop_tied_copies(file, base, config, head, whole, left)
    if left:
        raise VerificationError(
            f"{file}: unknown tensors: {first_names(sorted(left))}", "name the head with --head"
        )
    given = {*whole, *base.sources_in(config, head).values()}
    if has_new_rows:
        unsaved = {name: axis for name, axis in of_tokens.items() if name not in whole}
        whole |= resize_buffers(base, config, head, unsaved)
        given -= of_tokens.keys() - whole.keys()
    if missing := [e.target for e in weights.entries() if e.target not in given]:
        listed = first_names(sorted(missing))
        raise VerificationError(
            f"{file}: neither it nor {base.path} has {listed} of the head {head}",
            "name another head with --head",
        )
    return whole


def resize_buffers(
    base: Checkpoint, config: Config, head: str, axes: Mapping[str, int]
) -> dict[str, Tensor]:
    """Return those of a base's tensors of tokens that are buffers, with as many tokens as config.

    Adapters do not hold buffers, such as a bias of logits that is not trained. New tokens have
    zeros there, as in ``resize_token_embeddings`` of transformers.
    """
    with init_empty_weights():
        buffers = dict(base.family.model(config, head).named_buffers())
    names = axes.keys() & buffers.keys()
    resized = {}
    for name, array in iter_base_tensors(base, config, head, names):
        axis = axes[name]
        kept = array.take(range(min(array.shape[axis], config.vocab_size)), axis)
        added = config.vocab_size - kept.shape[axis]
        padding = [(0, added if number == axis else 0) for number in range(array.ndim)]
        resized[name] = torch.from_numpy(np.pad(kept, padding))
    return resized


def tied_values(
    base: Checkpoint, config: Config, head: str, whole: Mapping[str, Tensor], names: Collection[str]
) -> dict[str, Tensor]:
    """Return the values of tensors that are tied to others, by the names that the Hub writes.

    Args:
        whole: tensors of the adapter that replace the base's, by our names.
        names: the names to return, as far as these are tied.
    """
    weights = base.family.weights(config, head)
    owners = {source: entry for entry in weights.entries() for source in entry.sources}
    aliases = {
        weights.written(alias): owner
        for alias, owner in weights.aliases().items()
        if weights.written(alias) in names and owner in owners
    }
    unchanged = {owners[owner].target for owner in aliases.values()} - whole.keys()
    arrays = read_base_tensors(base, config, head, unchanged)
    values = {}
    for name, owner in aliases.items():
        entry = owners[owner]
        replaced = whole.get(entry.target)
        array = arrays[entry.target] if replaced is None else replaced.numpy()
        part = entry.op.to_hub(array)[entry.sources.index(owner)]
        values[name] = torch.from_numpy(part.copy())
    return values


def drop_tied_copies(
    file: Path,
    base: Checkpoint,
    config: Config,
    head: str,
    whole: Mapping[str, Tensor],
    tensors: dict[str, Tensor],
) -> None:
    """Remove tensors that equal those that they are tied to."""
    for name, value in tied_values(base, config, head, whole, tensors.keys()).items():
        if not torch.equal(tensors.pop(name).float(), value):
            raise VerificationError(
                f"{file}: {name} differs from the tensor that config.json ties it to",
                "merge the adapter in peft, and convert the model",
            )


def write_read(
    path: Path,
    reference: str,
    base: Checkpoint,
    adaptable: AdaptableModel,
    method: AdapterMethod,
    tensors: Mapping[str, Tensor],
    whole: Mapping[str, Tensor],
    source: Path,
    record: SourceRecord,
    *,
    read: int,
    force: bool,
    sentence: Mapping[str, Any] | None = None,
    modules: "ModuleWeights | None" = None,
    tokenizer: SourceTokenizer | None = None,
) -> AdapterReport:
    """Write an adapter that was read from the files of another library."""
    require_finite_effect(method, adaptable, tensors, base, source)
    # whole: tensors of modules that were trained as a whole; read: number of tensors in the files;
    # sentence: fields of ``config.json`` about sentence encoders and cross-encoders; ``None`` for
    # the base's; modules: weights of its modules, ``None`` for the base's; tokenizer: its own, or
    # ``None`` for the base's
    config = adaptable.config
    head = adaptable.head
    same_head = head == base.head_name
    names = CheckpointDir(source, str(source)).all_names()
    unread = find_unread_files(names, record.files)
    info = base.model.tokenizer if tokenizer is None else tokenizer.info
    if sentence is None:
        sentence = sentence_fields_of(base) if same_head else {}
    model = ModelFile(
        zoo=FORMAT_VERSION,
        family=base.family.name,
        head=head,
        config=msgspec.to_builtins(config),
        tokenizer=shortened_tokenizer(info, base, method, config, head),
        generation=base.model.generation if same_head else {},
        **sentence,
    )
    write_adapter(
        path,
        model,
        {**tensors, **whole},
        AdapterRecord(settings=adapter_settings(method), base=base_record(reference, base)),
        sources=[source, base.path],
        force=force,
        source=record,
        modules=modules,
        tokenizer=None if tokenizer is None else tokenizer.json,
        account={"unread_files": unread} if unread else None,
    )
    weights = base.family.weights(config, head)
    modules_of_head = saved_modules(weights, list(whole))
    return AdapterReport(path, method.name, read, modules_of_head, reference, unread)


def sentence_fields_of(base: Checkpoint) -> dict[str, Any]:
    """Return the fields of ``config.json`` about sentence encoders and cross-encoders of a base."""
    model = base.model
    return {
        "pooling": model.pooling,
        "score_activation": model.score_activation,
        "pairs": model.pairs,
    }


def shortened_tokenizer(
    info: TokenizerInfo | None,
    base: Checkpoint,
    method: AdapterMethod,
    config: Config,
    head: str,
) -> TokenizerInfo | None:
    """Return the properties of a tokenizer, with the longest text next to an adapter."""
    before = base.family.onnx(config, head).limits
    limits = method.shortened(before)
    if info is None or limits == before or "tokens" not in limits:
        return info
    longest = min(limits["tokens"], info.max_tokens or limits["tokens"])
    return msgspec.structs.replace(info, max_tokens=longest)
