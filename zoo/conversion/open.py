"""Opening of a checkpoint directory in the Hub's layout or the zoo's."""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, cast

import msgspec

from zoo.checkpoint import Checkpoint, load_checkpoint
from zoo.checkpoint.generation_config import (
    GENERATION_CONFIG,
    checked_generation_config,
    generation_of_model_config,
)
from zoo.conversion.dtypes import widen
from zoo.conversion.inspect import class_names, find_config
from zoo.conversion.self_contained import with_derived_files
from zoo.conversion.tokenizer import SourceTokenizer, read_tokenizer
from zoo.errors import SourceError, UsageError, VerificationError
from zoo.families.base import GENERATING, POOLING_HEAD, Family
from zoo.families.config import Config
from zoo.families.runtimes import RuntimeModel
from zoo.hub.select_files import CONFIG, SIDE_FILES, choose_format
from zoo.hub.source import CheckpointDir
from zoo.io.tensors.formats import FLOATING, SelectedReader, TensorInfo, TensorReader, widest_dtype
from zoo.overrides import override
from zoo.plugins import format_named
from zoo.sentence_models.colbert_files import PROJECTION, is_stanford
from zoo.sentence_models.pooling import Pooling
from zoo.sentence_models.retrieval_heads import HEAD_FILES, with_heads
from zoo.sentence_models.sentence_transformers_files import MODULES, TASK_TRANSFORMER
from zoo.tokenizers import SourceFiles
from zoo.tokenizers.info import TokenizerInfo
from zoo.weights import TensorCopy, TensorMapping, WeightMap
from zoo.weights.releases import RenamingReader

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Array = NDArray[np.generic[Any]]


# Naming schemes that families describe by ``Family.runtime_model``.
RUNTIMES = ("gguf",)
# Targets whose exports are read like published files.
READ_BACK = (*RUNTIMES, "static")


@dataclass(frozen=True)
class OpenCheckpoint:
    """An open checkpoint in the Hub's layout or the zoo's."""

    source: CheckpointDir
    family: Family
    config: Config
    reader: TensorReader  # The tensors, under the names of the layout.
    format: str
    quantized: tuple[str, ...] = ()  # See ``TensorReader``.
    architectures: tuple[str, ...] = ()  # Class names in the Hub's configuration.
    # Keys of the Hub's configuration that have no field, and are written back.
    extra: Mapping[str, Any] | None = None
    unknown: tuple[str, ...] = ()  # Keys of ``extra`` that the family does not declare.
    # Optional parts that the configuration declares.
    declared_optional: frozenset[str] = frozenset()
    doubt: str = ""  # See ``TranslatedConfig``.
    num_labels: int | None = None  # See ``TranslatedConfig``.
    # See ``ModelFile.generation``.
    generation: Mapping[str, Any] = field(default_factory=dict)
    # The checkpoint, if it has the zoo's layout; ``None`` for the Hub's.
    checkpoint: Checkpoint | None = None
    side_files: tuple[str, ...] = ()  # Small files that were read.
    naming_scheme: str = "hub"  # See ``Format.naming_scheme``.
    # The map from hidden states to vectors of tokens, in a checkpoint of Stanford's ColBERT.
    projection: TensorReader | None = None
    # File of a further head of a sentence encoder -> its tensors; see ``HEAD_FILES``.
    retrieval_heads: Mapping[str, TensorReader] = field(default_factory=dict)

    def for_head(self, head: str) -> "OpenCheckpoint":
        """Return the checkpoint with the Hub's tensor names, restricted to tensors for a head."""
        if self.naming_scheme == "hub":
            if head == POOLING_HEAD:
                return self
            return self._without_pooling_head()
        if self.naming_scheme in RUNTIMES:
            model = self.family.runtime_model(self.naming_scheme, self.config, head)
            if isinstance(model, str):  # No tensor has the name of a tensor of this head.
                return replace(self, naming_scheme="hub")
            reader = RuntimeReader(self.reader, model, self.family.weights(self.config, head))
            return replace(self, reader=reader, naming_scheme="hub")
        names = self.family.map_release_tensors(self.naming_scheme, list(self.reader.tensors), head)
        return replace(self, reader=RenamingReader(self.reader, names), naming_scheme="hub")

    def _without_pooling_head(self) -> "OpenCheckpoint":
        """Return the checkpoint without the pooling of a classifier, for another head.

        An encoder that was trained by its embeddings, with a classifier of these, stays one.
        """
        fields = [name for name in ("pooling", "sentence_head") if getattr(self.config, name, None)]
        if self.checkpoint is None or not fields:
            return self
        config = msgspec.structs.replace(self.config, **dict.fromkeys(fields))
        unit = getattr(self.config, "sentence_head", None)
        model = self.checkpoint.model
        if unit is not None:
            mode: Any = getattr(self.config, "pooling", None) or "cls"
            pooling = Pooling(mode=mode, normalize=unit == "unit")
            model = msgspec.structs.replace(model, pooling=pooling)
        return replace(self, config=config, checkpoint=replace(self.checkpoint, model=model))

    @property
    def ignored(self) -> Mapping[str, str]:
        """Name of a tensor that is not a weight, such as optimizer state -> reason to ignore it."""
        if isinstance(self.reader, RenamingReader):
            return self.reader.left
        return {}

    @property
    def files(self) -> SourceFiles:
        """Files of the tokenizer and of pooling."""
        return self.source.files

    def files_read(self) -> list[str]:
        """Return the names of the configuration and side files that are read, each once."""
        self.pooling  # noqa: B018 (reading it adds its files to names_read)
        names = dict.fromkeys([*self.side_files, *sorted(self.files.names_read)])
        return [name for name in names if name not in self.source.derived]

    @property
    def tokenizer(self) -> TokenizerInfo | None:
        """Tokenizer record of a checkpoint in the zoo's layout."""
        if self.checkpoint is None:
            return None
        return self.checkpoint.model.tokenizer

    @property
    def pooling(self) -> Pooling | None:
        """Pooling of a sentence encoder; ``None`` for other models."""
        from zoo.sentence_models import read_pooling

        if self.checkpoint:
            return self.checkpoint.model.pooling
        location = self.source.model_directory / self.family.config_files[0]
        projection_shape = None
        if self.projection is not None:
            projection_shape = self.projection.tensors[PROJECTION].shape
        pooling = read_pooling(self.files, projection_shape)
        selects_task = pooling is not None and MODULES in pooling.extra
        if selects_task and not self.family.prompt_types(self.config):
            raise VerificationError(
                f"{self.source.directory / MODULES}: {TASK_TRANSFORMER} is not implemented as the "
                "first module of this model",
                "only of models with updates for several tasks",
            )
        if self.retrieval_heads:
            head_shapes = {}
            for file, reader in self.retrieval_heads.items():
                head_shapes[file] = {name: info.shape for name, info in reader.tensors.items()}
            vocab_size = getattr(self.config, "vocab_size", 0)
            directory = str(self.source.directory)
            pooling = with_heads(pooling, head_shapes, vocab_size, directory)
        return self.family.sentence_settings(self.extra or {}, pooling, str(location))

    def read_tokenizer(
        self, config: Config, elsewhere: CheckpointDir | None = None
    ) -> SourceTokenizer | None:
        """Return the tokenizer of the result, or ``None`` if the source has none.

        Args:
            config: configuration of the result, with the number of its tokens.
            elsewhere: a directory whose tokenizer is read in place of the source's.
        """
        tokenizer = read_tokenizer(
            self.family,
            elsewhere or self.source,
            config,
            stanford=self.projection is not None,
        )
        if tokenizer is None and elsewhere is not None:
            raise SourceError(f"{elsewhere.directory} has no tokenizer files")
        return tokenizer

    def zoo_tensor(self, entry: TensorMapping, names: Sequence[str]) -> "Sequence[Array]":
        """Return the chunks of a tensor of the zoo's layout, in storage dtype.

        Parts of several dtypes are read in the smallest that holds all their values.
        """
        arrays = self._read_widened(names)
        if self.checkpoint is not None:
            return arrays
        return entry.op.chunks(arrays)

    def hub_tensors(self, entry: TensorMapping, names: Sequence[str]) -> "Sequence[Array]":
        """Return the Hub's tensors from which a tensor of the zoo's layout is computed.

        Tensors of several dtypes are read in the smallest that holds all their values.
        """
        arrays = self._read_widened(names)
        if self.checkpoint is not None:
            return entry.op.to_hub(arrays[0])
        return arrays

    def stored_tensors(
        self, entry: TensorMapping, copy: TensorCopy
    ) -> "tuple[Sequence[Array], Sequence[str]]":
        """Return the Hub's tensors of a rule in the dtypes of the files, and these dtypes."""
        if self.checkpoint:
            parts = self.hub_tensors(entry, copy.names)
            return parts, [copy.dtype] * len(parts)
        return lazy_arrays(self.reader, copy.names), copy.dtypes

    def _read_widened(self, names: Sequence[str]) -> "Sequence[Array]":
        codes = [self.reader.tensors[name].dtype for name in names]
        return widen(lazy_arrays(self.reader, names), codes)


def lazy_arrays(reader: TensorReader, names: Sequence[str]) -> "list[Array]":
    """Return tensors that are read on use.

    A ``FileArray`` is not a numpy array, but has the methods that operations on weights use.
    """
    return [cast("Array", reader.lazy(name)) for name in names]


def open_source(
    source: CheckpointDir, *, allow_pickle: bool = False, ignore_crc: bool = False
) -> OpenCheckpoint:
    """Open a checkpoint directory."""
    from zoo.sentence_models.cross_encoder_files import read_cross_encoder

    if source.is_converted and load_checkpoint(source.directory).export_target not in READ_BACK:
        if source.model_type is not None:
            raise UsageError(
                f"{source.directory} is a converted checkpoint, whose family is known",
                "leave out --model-type",
            )
        checkpoint = load_checkpoint(source.directory)
        if not checkpoint.is_export:
            checkpoint.require_unchanged()
        extra_config: Mapping[str, Any] | None = None
        if checkpoint.manifest.source is not None:
            extra_config = checkpoint.manifest.source.extra_config
        path = checkpoint.path
        side_files = [CONFIG, "zoo.json", "tokenizer.json"]
        return OpenCheckpoint(
            source=source,
            family=checkpoint.family,
            config=checkpoint.config,
            reader=checkpoint.open_weights(),
            format="zoo",
            extra=extra_config,
            generation=checkpoint.model.generation,
            checkpoint=checkpoint,
            side_files=tuple(name for name in side_files if (path / name).is_file()),
        )
    source = with_derived_files(source)
    config_name, family, hub = find_config(source)
    names = [*source.names(), *source.graphs()]
    file_format, files = choose_format(names, str(source.directory), allow_pickle=allow_pickle)
    if ignore_crc:
        file_format = file_format.without_checksums()
    source_files = source.files
    side_files = [config_name]
    for pattern in SIDE_FILES:
        side_files += source_files.matching(pattern)
    with ExitStack() as on_error:
        reader = file_format.open(source.model_directory, files)
        on_error.callback(reader.close)
        quantized = tuple(reader.quantized)
        hub = dict(family.infer_config(hub, reader.tensors, source_files))
        config_file = config_name
        if config_name in source.derived:  # It was derived from the weights, and is in their file.
            config_file = files[0]
        translation = family.from_hub(hub, str(source.directory / config_file))
        projection = None
        if is_stanford(class_names(hub)):
            if PROJECTION not in reader.tensors:
                raise VerificationError(
                    f"{source.directory}: a model of ColBERT has {PROJECTION}, which its weights "
                    "lack",
                    "correct architectures in config.json if it is another model",
                )
            projection = SelectedReader(reader, [PROJECTION])
            reader = SelectedReader(reader, [name for name in reader.tensors if name != PROJECTION])
        opened = OpenCheckpoint(
            source=source,
            family=family,
            config=translation.config,
            projection=projection,
            retrieval_heads=_open_retrieval_heads(source, allow_pickle=allow_pickle),
            reader=reader,
            format=file_format.name,
            quantized=quantized,
            architectures=class_names(hub),
            extra={**translation.extra, **read_cross_encoder(source_files)},
            unknown=translation.unknown,
            declared_optional=translation.declared_optional,
            doubt=translation.doubt,
            num_labels=translation.num_labels,
            generation=_generation(family, source_files, hub),
            side_files=tuple(side_files),
            naming_scheme=file_format.naming_scheme,
        )
        on_error.pop_all()
    return opened


def _open_retrieval_heads(source: CheckpointDir, *, allow_pickle: bool) -> dict[str, TensorReader]:
    """Open the further heads of a sentence encoder, which are pickles."""
    readers = {}
    for file in HEAD_FILES:
        if allow_pickle and source.files.has(file):
            readers[file] = format_named("pytorch").open(source.directory, [file])
    return readers


def _generation(family: Family, files: SourceFiles, hub: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of generation of a published checkpoint, if the family generates."""
    if not any(GENERATING.intersection(head.tasks) for head in family.heads().values()):
        return {}
    if files.has(GENERATION_CONFIG):
        path = files.path(GENERATION_CONFIG)
        return checked_generation_config(files.json(GENERATION_CONFIG), path)
    return generation_of_model_config(hub, files.path(CONFIG))


class RuntimeReader(TensorReader):
    """Tensors of a runtime's file, rearranged first to ours and then to the Hub's."""

    # Tensors that the model has no rule for keep their names, so that a conversion reports them.

    def __init__(self, inner: TensorReader, model: RuntimeModel, weights: WeightMap) -> None:
        self.inner = inner
        self.files = inner.files
        hub_entries = {entry.target: entry for entry in weights.entries()}
        self._pairs: dict[str, tuple[TensorMapping, TensorMapping, int]] = {}
        self.tensors: dict[str, TensorInfo] = {}
        mapped_names = set[str]()
        for runtime_entry in model.weights.entries():
            if not set(runtime_entry.sources) <= inner.tensors.keys():
                continue
            mapped_names.update(runtime_entry.sources)
            hub_entry = hub_entries[runtime_entry.target]
            codes = [inner.tensors[name].dtype for name in runtime_entry.sources]
            integers = [code for code in codes if code not in FLOATING]  # They are refused by name.
            code = integers[0] if integers else widest_dtype(codes)
            shapes = [inner.tensors[name].shape for name in runtime_entry.sources]
            if shapes != list(runtime_entry.source_shapes):
                # The conversion reports them as tensors with another shape.
                self.tensors |= {name: inner.tensors[name] for name in runtime_entry.sources}
                continue
            hub_tensors = zip(hub_entry.sources, hub_entry.source_shapes, strict=True)
            for index, (name, shape) in enumerate(hub_tensors):
                self._pairs[name] = (runtime_entry, hub_entry, index)
                self.tensors[name] = TensorInfo(code, shape)
        unmapped_names = inner.tensors.keys() - mapped_names - set(model.copies)
        self.tensors |= {name: inner.tensors[name] for name in unmapped_names}

    @override
    def read(self, name: str) -> "NDArray[np.generic[Any]]":
        if name not in self._pairs:
            return self.inner.read(name)
        runtime_entry, hub_entry, index = self._pairs[name]
        arrays: list[Any] = [self.inner.read(source) for source in runtime_entry.sources]
        codes = [self.inner.tensors[source].dtype for source in runtime_entry.sources]
        tensor = runtime_entry.op.from_hub(widen(arrays, codes), hub_entry.shape)
        array: NDArray[np.generic[Any]] = hub_entry.op.to_hub(tensor)[index]
        return array

    @override
    def close(self) -> None:
        self.inner.close()
