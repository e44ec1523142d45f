"""Opening what is converted: a directory in the Hub's layout or in ours, seen the same way."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

from zoo.checkpoint import Checkpoint, is_checkpoint, load_checkpoint
from zoo.convert.inspect import class_names, find_config
from zoo.errors import UsageError
from zoo.families.base import Family
from zoo.families.config import Config, TranslatedConfig
from zoo.hub.select_files import CONFIG, SIDE_FILES, choose_format
from zoo.hub.source import CheckpointDir
from zoo.io.tensors.formats import Format, TensorReader
from zoo.tokenizers import SourceFiles
from zoo.tokenizers.info import TokenizerInfo
from zoo.tokenizers.pooling import Pooling
from zoo.weights import TensorMapping
from zoo.weights.releases import RenamingReader

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Array = NDArray[np.generic[Any]]  # or a FileArray


@dataclass(frozen=True)
class OpenCheckpoint:
    """A checkpoint with its tensors at hand, in whichever layout it came.

    Attributes:
        source: where it is.
        family: who answers for it.
        config: the family's configuration.
        reader: its tensors, under the layout's own names.
        format: name of the file format.
        architectures: the class names that a Hub configuration gives.
        extra: keys of the Hub's configuration to carry along, if it came from there.
        unknown: those of them that the family does not know.
        declared_optional: optional parts that the configuration says are there.
        checkpoint: the description, if the layout is ours.
        side_files: names of the small files that were read.
        naming_scheme: whose names the tensors bear, see ``Format.dialect``.
    """

    source: CheckpointDir
    family: Family
    config: Config
    reader: TensorReader
    format: str
    architectures: tuple[str, ...] = ()
    extra: Mapping[str, Any] | None = None
    unknown: tuple[str, ...] = ()
    declared_optional: frozenset[str] = frozenset()
    checkpoint: Checkpoint | None = None
    side_files: tuple[str, ...] = ()
    naming_scheme: str = "hub"

    def for_head(self, head: str) -> "OpenCheckpoint":
        """Return the same with the Hub's names, of those tensors that are meant by a head.

        Raises:
            UsageError: the family does not know the names.
            VerificationError: two names mean the same.
        """
        if self.naming_scheme == "hub":
            return self
        found = self.family.map_release_tensors(self.naming_scheme, list(self.reader.tensors), head)
        return replace(self, reader=RenamingReader(self.reader, found), naming_scheme="hub")

    @property
    def ignored(self) -> Mapping[str, str]:
        """Tensors that are no weights, such as an optimizer's -> why they are left out."""
        return self.reader.left if isinstance(self.reader, RenamingReader) else {}

    @property
    def files(self) -> SourceFiles:
        """The side files."""
        return self.source.files

    def files_read(self) -> list[str]:
        """Return the names of the small files that are read, each once."""
        self.pooling  # noqa: B018 (which files it is in follows from one of them)
        return list(dict.fromkeys([*self.side_files, *sorted(self.files.names_read)]))

    @property
    def tokenizer(self) -> TokenizerInfo | None:
        """What is known of the tokenizer, if the layout is ours."""
        return self.checkpoint.model.tokenizer if self.checkpoint else None

    @property
    def pooling(self) -> Pooling | None:
        """How sentence vectors are made, if the checkpoint says so."""
        from zoo.tokenizers import read_pooling

        return self.checkpoint.model.pooling if self.checkpoint else read_pooling(self.files)

    def ours(self, entry: TensorMapping, names: Sequence[str]) -> "Sequence[Array]":
        """Return arrays that make up one of our tensors, in storage dtype."""
        arrays = lazy_arrays(self.reader, names)
        return arrays if self.checkpoint else entry.op.chunks(arrays)

    def hub(self, entry: TensorMapping, names: Sequence[str]) -> "Sequence[Array]":
        """Return the Hub's tensors that one of ours is made of."""
        arrays = lazy_arrays(self.reader, names)
        return entry.op.to_hf(arrays[0]) if self.checkpoint else arrays


def lazy_arrays(reader: TensorReader, names: Sequence[str]) -> "list[Array]":
    """Return tensors that are read when they are needed.

    Arrays of files are no numpy arrays, but have the methods that operations on weights use.
    """
    return [cast("Array", reader.lazy(name)) for name in names]


def open_source(
    source: CheckpointDir, *, allow_pickle: bool = False, ignore_crc: bool = False
) -> OpenCheckpoint:
    """Open a checkpoint directory.

    Args:
        source: the directory.
        allow_pickle: read PyTorch's pickles.
        ignore_crc: accept archives that were written without checksums.

    Raises:
        SourceError: it holds no checkpoint.
        VerificationError: its files are damaged, or its configuration is not implemented.
        UsageError: its format is a pickle and ``allow_pickle`` is not given; or a model type is
            given that its files contradict.
    """
    if is_checkpoint(source.directory):
        if source.model_type is not None:
            said = f"{source.directory} is in our layout, which says its family"
            raise UsageError(said, "leave out --model-type")
        return _open_ours(source, load_checkpoint(source.directory))
    name, family, hub = find_config(source)
    translation = family.from_hf(hub, str(source.directory / name))
    chosen, files = choose_format(source.names(), str(source.directory), allow_pickle=allow_pickle)
    if ignore_crc:
        chosen = chosen.without_checksums()
    reader = chosen.open(source.directory, files)
    return _open_hub(source, name, family, translation, hub, chosen, reader)


def _open_hub(
    source: CheckpointDir,
    config_file: str,
    family: Family,
    translation: TranslatedConfig,
    hub: Mapping[str, Any],
    chosen: Format,
    reader: TensorReader,
) -> OpenCheckpoint:
    present = source.files
    return OpenCheckpoint(
        source=source,
        family=family,
        config=translation.config,
        reader=reader,
        format=chosen.name,
        architectures=class_names(hub),
        extra=translation.extra,
        unknown=translation.unknown,
        declared_optional=translation.declared_optional,
        side_files=(config_file, *(n for side in SIDE_FILES for n in present.matching(side))),
        naming_scheme=chosen.naming_scheme,
    )


def _open_ours(source: CheckpointDir, checkpoint: Checkpoint) -> OpenCheckpoint:
    manifest = checkpoint.manifest
    if checkpoint.graph is None:
        checkpoint.require_unchanged()
    present = [CONFIG, "zoo.json", "tokenizer.json"]
    return OpenCheckpoint(
        source=source,
        family=checkpoint.family,
        config=checkpoint.config,
        reader=checkpoint.open_weights(),
        format="zoo",
        extra=manifest.source.extra_config if manifest.source else None,
        checkpoint=checkpoint,
        side_files=tuple(n for n in present if (checkpoint.path / n).is_file()),
    )
