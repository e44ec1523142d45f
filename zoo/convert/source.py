"""Opening what is converted: a directory in the Hub's layout or in ours, seen the same way."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any

from zoo.checkpoint import Checkpoint, Pooling, TokenizerInfo, is_checkpoint, load_checkpoint
from zoo.config import Config, Translation
from zoo.errors import SourceError, UsageError, VerificationError, nearest
from zoo.family import Family
from zoo.foreign import ForeignReader
from zoo.formats import Format, TensorReader
from zoo.plugins import all_families, all_formats, family_of_model_type
from zoo.references import Source
from zoo.tokenization import POOLING_FILES, TOKENIZER_FILES, SourceFiles
from zoo.weights import Entry

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Array = NDArray[np.generic[Any]]

CONFIG = "config.json"
SIDE_FILES = (*TOKENIZER_FILES, *POOLING_FILES)  # patterns, beside the configuration


@dataclass(frozen=True)
class Opened:
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
        checkpoint: the description, if the layout is ours.
        side_files: names of the small files that were read.
        dialect: whose names the tensors bear, see ``Format.dialect``.
    """

    source: Source
    family: Family
    config: Config
    reader: TensorReader
    format: str
    architectures: tuple[str, ...] = ()
    extra: Mapping[str, Any] | None = None
    unknown: tuple[str, ...] = ()
    checkpoint: Checkpoint | None = None
    side_files: tuple[str, ...] = ()
    dialect: str = "hub"

    def for_head(self, head: str) -> "Opened":
        """Return the same with the Hub's names, of those tensors that are meant by a head.

        Raises:
            UsageError: the family does not know the names.
            VerificationError: two names mean the same.
        """
        if self.dialect == "hub":
            return self
        found = self.family.foreign(self.dialect, list(self.reader.tensors), head)
        return replace(self, reader=ForeignReader(self.reader, found), dialect="hub")

    @property
    def leave(self) -> Mapping[str, str]:
        """Tensors that are no weights, such as an optimizer's -> why they are left out."""
        return self.reader.left if isinstance(self.reader, ForeignReader) else {}

    @property
    def files(self) -> SourceFiles:
        """The side files."""
        return self.source.files

    @property
    def tokenizer(self) -> TokenizerInfo | None:
        """What is known of the tokenizer, if the layout is ours."""
        return self.checkpoint.model.tokenizer if self.checkpoint else None

    @property
    def pooling(self) -> Pooling | None:
        """How sentence vectors are made, if the checkpoint says so."""
        from zoo.tokenization import read_pooling

        return self.checkpoint.model.pooling if self.checkpoint else read_pooling(self.files)

    def ours(self, entry: Entry, names: Sequence[str]) -> "Sequence[Array]":
        """Return arrays that make up one of our tensors, in storage dtype."""
        arrays = [self.reader.read(name) for name in names]
        return arrays if self.checkpoint else entry.op.pieces(arrays)

    def hub(self, entry: Entry, names: Sequence[str]) -> "Sequence[Array]":
        """Return the Hub's tensors that one of ours is made of."""
        arrays = [self.reader.read(name) for name in names]
        return entry.op.to_hub(arrays[0]) if self.checkpoint else arrays


def open_source(source: Source, *, allow_pickle: bool = False) -> Opened:
    """Open a checkpoint directory.

    Raises:
        SourceError: it holds no checkpoint.
        VerificationError: its files are damaged, or its configuration is not implemented.
        UsageError: its format runs code and ``allow_pickle`` is not given.
    """
    if is_checkpoint(source.directory):
        return _open_ours(source, load_checkpoint(source.directory))
    name, family, hub = find_config(source)
    translation = family.from_hub(hub, str(source.directory / name))
    chosen, files = choose_format(source.names(), str(source.directory), allow_pickle=allow_pickle)
    reader = chosen.open(source.directory, files)
    return _open_hub(source, name, family, translation, hub, chosen, reader)


def find_config(source: Source) -> tuple[str, Family, dict[str, Any]]:
    """Find the configuration of a published checkpoint.

    Returns:
        the file's name, the family that answers for it, and what it holds.

    Raises:
        SourceError: there is none.
        VerificationError: it is not a JSON object, or does not name a family.
        UsageError: no installed family answers for it.
    """
    directory = source.directory
    if not (directory / CONFIG).is_file():
        for family in all_families().values():
            for pattern in family.config_files:
                for name in source.files.matching(pattern):
                    found = read_hub_config(directory, name)
                    if family.claims(found):
                        return name, family, found
    hub = read_hub_config(directory)
    return CONFIG, _family_of(hub, directory), hub


def _open_hub(
    source: Source,
    config_file: str,
    family: Family,
    translation: Translation,
    hub: Mapping[str, Any],
    chosen: Format,
    reader: TensorReader,
) -> Opened:
    present = source.files
    return Opened(
        source=source,
        family=family,
        config=translation.config,
        reader=reader,
        format=chosen.name,
        architectures=tuple(map(str, hub.get("architectures") or ())),
        extra=translation.extra,
        unknown=translation.unknown,
        side_files=(config_file, *(n for side in SIDE_FILES for n in present.matching(side))),
        dialect=chosen.dialect,
    )


def _open_ours(source: Source, checkpoint: Checkpoint) -> Opened:
    manifest = checkpoint.manifest
    present = [CONFIG, "zoo.json", "tokenizer.json"]
    return Opened(
        source=source,
        family=checkpoint.family,
        config=checkpoint.config,
        reader=checkpoint.open_weights(),
        format="zoo",
        extra=manifest.source.extra_config if manifest.source else None,
        checkpoint=checkpoint,
        side_files=tuple(n for n in present if (checkpoint.path / n).is_file()),
    )


def read_hub_config(directory: Path, name: str = CONFIG) -> dict[str, Any]:
    """Read the configuration of a published checkpoint.

    Raises:
        SourceError: there is none.
        VerificationError: it is not a JSON object.
    """
    path = directory / name
    try:
        found = json.loads(path.read_text("utf-8"))
    except FileNotFoundError as error:
        raise _without(directory, name) from error
    except OSError as error:
        raise SourceError(f"{path}: {error.strerror}") from error
    except ValueError as error:
        raise VerificationError(f"{path} is not JSON: {error}") from error
    if not isinstance(found, dict):
        raise VerificationError(f"{path} is not a JSON object")
    return found


def _without(directory: Path, name: str) -> SourceError:
    """Return the error of a directory that lacks its configuration."""
    names = [path.name for path in directory.iterdir()]
    if any(each.find(names) for each in all_formats()):
        return SourceError(
            f"{directory} holds no {name}, and its weights alone do not say of which family and "
            "shape they are",
            f"put the {name} that this model has on the Hub beside them",
        )
    what = f"holds no {name}" if names else "is empty"
    return SourceError(f"{directory} {what}", "give the directory of a checkpoint")


def _family_of(hub: Mapping[str, Any], directory: Path) -> Family:
    model_type = hub.get("model_type")
    if not isinstance(model_type, str):
        raise VerificationError(
            f"{directory / CONFIG} has no model_type", "it says which family the weights are of"
        )
    family = family_of_model_type(model_type)
    if family is None:
        known = sorted(t for f in all_families().values() for t in f.model_types)
        raise UsageError(
            f"{directory / CONFIG}: no installed family answers for model_type {model_type!r}",
            nearest(model_type, known) or f"installed: {', '.join(known)}",
        )
    return family


def choose_format(
    names: Sequence[str], where: str, *, allow_pickle: bool
) -> tuple[Format, tuple[str, ...]]:
    """Choose the file format to read, by file names alone.

    Returns:
        the format and the files it reads.

    Raises:
        SourceError: no known format is there.
        UsageError: the only one runs code and ``allow_pickle`` is not given.
    """
    found = [(each, files) for each in all_formats() if (files := each.find(names))]
    safe = [(each, files) for each, files in found if allow_pickle or not each.executable]
    if safe:
        return safe[0]
    if found:
        raise UsageError(
            f"{where} holds its weights only as {', '.join(found[0][1])}, a pickle, which can "
            "run code",
            "--allow-pickle reads it in a sandbox",
        )
    raise SourceError(f"{where} holds no weights in a known format", "see `zoo doctor`")


def needed_files(names: Sequence[str], where: str, *, allow_pickle: bool) -> list[str]:
    """Choose what to download of a repository: one format's weights and the side files."""
    _, weights = choose_format(names, where, allow_pickle=allow_pickle)
    return [*weights, *config_files(names), *_matching(names, SIDE_FILES)]


def config_files(names: Sequence[str]) -> list[str]:
    """Choose what may be the configuration: ``config.json``, else what families have instead."""
    if CONFIG in names:
        return [CONFIG]
    return _matching(names, [p for family in all_families().values() for p in family.config_files])


def _matching(names: Sequence[str], patterns: Sequence[str]) -> list[str]:
    return [name for name in names if any(fnmatchcase(name, pattern) for pattern in patterns)]
