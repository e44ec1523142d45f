"""What readers of adapters share: mapped tensors, the directory, the report."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from zoo.adapted_models.base import AdapterMethod
from zoo.adapted_models.checkpoint import require_finite_tensors
from zoo.adapted_models.layers import adapted_modules, add_stored_adapter, require_same_tensors
from zoo.adapted_models.registry import adapter_settings
from zoo.adapted_models.targets import AdaptableModel
from zoo.adapted_models.write import base_record, write_adapter
from zoo.checkpoint import FORMAT_VERSION, AdapterRecord, Checkpoint, ModelFile, SourceRecord
from zoo.conversion.dtypes import cast, numpy_dtype
from zoo.conversion.tokenizer import SourceTokenizer
from zoo.conversion.unread_files import find_unread_files
from zoo.errors import UsageError, VerificationError, first_names
from zoo.families.config import Config
from zoo.families.vocabulary import vocabulary_tensors
from zoo.hub.source import CheckpointDir
from zoo.io.digests.files import hash_file
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
    tensors: int  # Number of tensors of the adapter.
    head: list[str]  # Modules of the Hub's library that were trained as a whole.
    base: str
    # File with weights or labels that was not read -> the reason.
    unread_files: Mapping[str, str] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Return the report for JSON."""
        return {**vars(self), "path": str(self.path)}

    def _repr_html_(self) -> str:
        """Return the report as a table, for notebooks."""
        from zoo.report.cells import fields_cell

        fields = {"base": self.base, "tensors": self.tensors, "path": self.path}
        return fields_cell(f"{self.method} adapter", fields)

    def lines(self) -> list[str]:
        """Return the report for a person."""
        head = ""
        if self.head:
            head = f", and of the head: {', '.join(self.head)}"
        return [
            f"{self.method} adapter of {self.base}: {self.tensors} tensors{head}",
            *(f"not read: {name}: {reason}" for name, reason in self.unread_files.items()),
            f"wrote {self.path}",
        ]


@dataclass(frozen=True)
class SourceAdapter:
    """An adapter of another library, whose tensors have our names."""

    directory: Path
    format: str  # The layout of the directory, for the record of the source.
    weights_file: Path  # The file with the adapter's tensors, for error messages.
    files: Sequence[str]  # Names of the files that were read, without those of a tokenizer.
    num_tensors: int  # Number of tensors in the files.
    adaptable: AdaptableModel  # What adapters of the base may change, with the adapter's head.
    method: AdapterMethod
    tensors: Mapping[str, Tensor]  # Tensors of the method.
    head_tensors: Mapping[str, Tensor]  # Tensors of modules that were trained as a whole.
    # The adapter's own tokenizer; ``None`` for the base's.
    tokenizer: SourceTokenizer | None = None
    # Fields of ``config.json`` about sentence encoders and cross-encoders, and weights of the
    # modules of a sentence encoder; ``None`` for the base's.
    sentence_fields: Mapping[str, Any] | None = None
    module_weights: "ModuleWeights | None" = None

    def source_record(self) -> SourceRecord:
        """Return the record of the source, with the digests of its files."""
        tokenizer_files = () if self.tokenizer is None else self.tokenizer.files
        digests = {}
        for name in (*self.files, *tokenizer_files):
            if name not in digests:
                digests[name] = hash_file(self.directory / name)
        return SourceRecord(reference=str(self.directory), format=self.format, files=digests)


def require_head(family: "Family", head: str) -> None:
    """Check that a family has the head that an adapter is converted with."""
    if head not in family.heads():
        raise UsageError(f"{family.name} has no head {head!r}", "name one with --head")


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


def saved_modules(weights: WeightMap, names: Sequence[str]) -> list[str]:
    """Return the outermost modules of the Hub's library that hold only these tensors of ours."""
    sources_by_name = {entry.target: entry.sources for entry in weights.entries()}
    saved_sources = list[str]()
    for name in names:
        saved_sources += sources_by_name[name]
    other_sources = list[str]()
    for name, sources in sources_by_name.items():
        if name not in names:
            other_sources += sources
    return [weights.written(name) for name in outermost_parts(saved_sources, other_sources)]


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
        tensor = tensors.get(weights.written(entry.sources[0]))
        axis = axes.get(entry.target)
        if tensor is not None and axis is not None and tensor.dim() == len(entry.shape):
            sizes.add(tensor.shape[axis])
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
    """Return the tensors that were trained as a whole by our names.

    Every one of them is used, and the model has no tensor that neither they nor the base have.
    """
    weights = base.family.weights(config, head)
    remaining_tensors = dict(tensors)
    vocabulary_axes = token_axes(base, config, head)
    has_new_rows = bool(vocabulary_axes) and config.vocab_size != base.config.vocab_size
    if has_new_rows:
        adopt_tied_rows(weights, remaining_tensors)
    saved_tensors = {}
    for entry in weights.entries():
        names = [weights.written(source) for source in entry.sources]
        if not remaining_tensors.keys() >= set(names):
            continue
        arrays = [remaining_tensors.pop(name).float().numpy() for name in names]
        shapes = tuple(array.shape for array in arrays)
        if shapes != entry.source_shapes:
            hint = "give other --labels, or another base"
            if entry.target in vocabulary_axes:
                hint = "give the base that it was trained from"
            raise VerificationError(
                f"{file}: {names[0]} is of shape {shapes[0]}, not {entry.source_shapes[0]}", hint
            )
        array = entry.op.from_hub(arrays, entry.shape)
        saved_tensors[entry.target] = torch.from_numpy(array.copy())
    drop_tied_copies(file, base, config, head, saved_tensors, remaining_tensors)
    if remaining_tensors:
        raise VerificationError(
            f"{file}: unknown tensors: {first_names(sorted(remaining_tensors))}",
            "name the head with --head",
        )
    available_names = {*saved_tensors, *base.sources_in(config, head).values()}
    if has_new_rows:
        unsaved_axes = {}
        for name, axis in vocabulary_axes.items():
            if name not in saved_tensors:
                unsaved_axes[name] = axis
        saved_tensors |= resize_buffers(base, config, head, unsaved_axes)
        available_names -= vocabulary_axes.keys() - saved_tensors.keys()
    _require_all_tensors(file, base, head, weights, available_names)
    return saved_tensors


def _require_all_tensors(
    file: Path, base: Checkpoint, head: str, weights: WeightMap, available_names: Collection[str]
) -> None:
    """Check that an adapter or its base has every tensor of a model."""
    missing_names = []
    for entry in weights.entries():
        if entry.target not in available_names:
            missing_names.append(entry.target)
    if missing_names:
        raise VerificationError(
            f"{file}: neither it nor {base.path} has {first_names(sorted(missing_names))} of the "
            f"head {head}",
            "name another head with --head",
        )


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
        old_rows = array.take(range(min(array.shape[axis], config.vocab_size)), axis)
        padding = [(0, 0)] * array.ndim
        padding[axis] = (0, config.vocab_size - old_rows.shape[axis])
        resized[name] = torch.from_numpy(np.pad(old_rows, padding))
    return resized


def tied_values(
    base: Checkpoint,
    config: Config,
    head: str,
    saved_tensors: Mapping[str, Tensor],
    names: Collection[str],
) -> dict[str, Tensor]:
    """Return the values of tensors that are tied to others, by the names that the Hub writes.

    Args:
        saved_tensors: tensors of the adapter that replace the base's, by our names.
        names: the names to return, as far as these are tied.
    """
    weights = base.family.weights(config, head)
    entries = {}
    for entry in weights.entries():
        for source in entry.sources:
            entries[source] = entry
    owners = {}
    for alias, owner in weights.aliases().items():
        if weights.written(alias) in names and owner in entries:
            owners[weights.written(alias)] = owner
    base_names = {entries[owner].target for owner in owners.values()} - saved_tensors.keys()
    base_arrays = read_base_tensors(base, config, head, base_names)
    values = {}
    for name, owner in owners.items():
        entry = entries[owner]
        if entry.target in saved_tensors:
            array = saved_tensors[entry.target].numpy()
        else:
            array = base_arrays[entry.target]
        part = entry.op.to_hub(array)[entry.sources.index(owner)]
        values[name] = torch.from_numpy(part.copy())
    return values


def drop_tied_copies(
    file: Path,
    base: Checkpoint,
    config: Config,
    head: str,
    saved_tensors: Mapping[str, Tensor],
    tensors: dict[str, Tensor],
) -> None:
    """Remove tensors that equal the tensors that they are tied to."""
    for name, value in tied_values(base, config, head, saved_tensors, tensors.keys()).items():
        if not torch.equal(tensors.pop(name).float(), value):
            raise VerificationError(
                f"{file}: {name} differs from the tensor that config.json ties it to",
                "merge the adapter in peft, and convert the model",
            )


def write_source_adapter(
    adapter: SourceAdapter, base: Checkpoint, reference: str, path: Path, *, force: bool
) -> AdapterReport:
    """Write an adapter that was read from the files of another library.

    Args:
        adapter: the adapter.
        base: the model that it changes.
        reference: reference of the base, for the adapter's record.
        path: directory to write.
        force: whether to overwrite an earlier output.
    """
    source = adapter.directory
    adaptable = adapter.adaptable
    method = adapter.method
    config = adaptable.config
    head = adaptable.head
    require_same_tensors(method, adaptable, adapter.tensors, adapter.weights_file)
    require_finite_effect(method, adaptable, adapter.tensors, base, source)
    record = adapter.source_record()
    unread = find_unread_files(CheckpointDir(source, str(source)).all_names(), record.files)
    has_base_head = head == base.head_name
    sentence_fields = adapter.sentence_fields
    if sentence_fields is None:
        sentence_fields = sentence_fields_of(base) if has_base_head else {}
    tokenizer = adapter.tokenizer
    info = base.model.tokenizer if tokenizer is None else tokenizer.info
    model = ModelFile(
        zoo=FORMAT_VERSION,
        family=base.family.name,
        head=head,
        config=msgspec.to_builtins(config),
        tokenizer=shortened_tokenizer(info, base, method, config, head),
        generation=base.model.generation if has_base_head else {},
        **sentence_fields,
    )
    write_adapter(
        path,
        model,
        {**adapter.tensors, **adapter.head_tensors},
        AdapterRecord(settings=adapter_settings(method), base=base_record(reference, base)),
        sources=[source, base.path],
        force=force,
        source=record,
        modules=adapter.module_weights,
        tokenizer=None if tokenizer is None else tokenizer.json,
        account={"unread_files": unread} if unread else None,
    )
    head_modules = saved_modules(base.family.weights(config, head), list(adapter.head_tensors))
    return AdapterReport(path, method.name, adapter.num_tensors, head_modules, reference, unread)


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
    base_limits = base.family.onnx(config, head).limits
    limits = method.shortened(base_limits)
    if info is None or limits == base_limits or "tokens" not in limits:
        return info
    longest = min(limits["tokens"], info.max_tokens or limits["tokens"])
    return msgspec.structs.replace(info, max_tokens=longest)
