"""Reading a checkpoint directory without loading its weights."""

from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Self, TypeVar

import msgspec

from zoo.checkpoint.digests import check_manifest
from zoo.checkpoint.records import (
    CONFIG,
    FORMAT_VERSION,
    MANIFEST,
    TOKENIZER,
    WEIGHTS,
    WEIGHTS_INDEX,
    Manifest,
    ModelFile,
    WeightsIndex,
    encode_manifest,
)
from zoo.errors import SourceError, UsageError, VerificationError
from zoo.families.base import EMBEDDING, Family, Head
from zoo.families.config import Config
from zoo.families.global_tokens import with_global_tokens
from zoo.io.digests.verified import require_blake3
from zoo.io.json import encode_json, read_json_record
from zoo.io.paths import safe_join
from zoo.io.tensors.safetensors import SafetensorsReader
from zoo.plugins import get_family
from zoo.sentence_models.module_weights import module_weight_files, read_module_weights
from zoo.sentence_models.pooling import Pooling
from zoo.weights import WeightMap

if TYPE_CHECKING:
    from zoo.families.onnx import OnnxSpec
    from zoo.sentence_models.module_weights import ModuleWeights

GLOBAL_TOKENS = "global_tokens"  # Field of configurations.
ONNX = "onnx"  # The target of exports whose record names none.
Record = TypeVar("Record", bound=msgspec.Struct)


@dataclass(frozen=True)
class Checkpoint:
    """Description of a checkpoint on disk. The weights are not loaded."""

    path: Path
    model: ModelFile
    manifest: Manifest
    family: Family
    config: Config
    # what the user called the model, where that is not its directory
    reference: str = field(default="", kw_only=True, compare=False)
    # the tokens with global attention that replace those of ``config.json``, if any
    global_tokens: str | None = field(default=None, kw_only=True)

    @property
    def name(self) -> str:
        """What the user called the model, for messages."""
        return self.reference or str(self.path)

    def with_licence(self, licence: str) -> "Checkpoint":
        """Return the description with another licence, which copies of the model have."""
        return replace(self, manifest=msgspec.structs.replace(self.manifest, licence=licence))

    def with_representation(self, name: str | None) -> "Checkpoint":
        """Return the description with one of a sentence encoder's representations of texts.

        Its pooling computes ``Embed``; ``None`` is the first.

        Raises:
            UsageError: the model has no such representation.
        """
        pooling = self.model.pooling or Pooling()
        selected = pooling.representation(name)
        if selected is pooling:
            return self
        return replace(self, model=msgspec.structs.replace(self.model, pooling=selected))

    def with_global_tokens(self, text: str | None) -> Self:
        """Return the description with other tokens of global attention; ``None`` for its own.

        Raises:
            UsageError: the model has no global attention, the tokens do not fit, or the model is an
                export.
        """
        if text is None:
            return self
        config = with_global_tokens(self.family, self.config, text)
        if self.is_export:
            raise UsageError(
                f"{self.name} is an export, whose global tokens are those that it was made with",
                "export the model again with --global-tokens",
            )
        values = {**self.model.config, GLOBAL_TOKENS: msgspec.to_builtins(config)[GLOBAL_TOKENS]}
        model = msgspec.structs.replace(self.model, config=values)
        return replace(self, config=config, model=model, global_tokens=text)

    @property
    def head_name(self) -> str:
        """Name of the head."""
        return self.model.head

    @property
    def head(self) -> Head:
        """Inputs, outputs and tasks of the head."""
        return self.family.heads()[self.model.head]

    @property
    def tasks(self) -> tuple[str, ...]:
        """Tasks of ``zoo run`` that the model serves, by its head and its pooling."""
        head = self.head
        tasks = list(head.tasks)
        pooling = self.model.pooling
        if pooling is not None and pooling.output in head.outputs:
            for task in EMBEDDING:
                if task not in head.tasks:
                    tasks.append(task)
        return tuple(tasks)

    @cached_property
    def onnx_spec(self) -> "OnnxSpec":
        """Inputs, outputs and axes of the model's graph."""
        return self.family.onnx(self.config, self.model.head)

    @property
    def weights(self) -> WeightMap:
        """Mapping between the tensor names of the Hub and of this checkpoint."""
        return self.family.weights(self.config, self.model.head)

    @property
    def tokenizer_file(self) -> Path:
        """Path of ``tokenizer.json``, if there is one."""
        return self.path / TOKENIZER

    @property
    def file_digests(self) -> bytes:
        """Names and digests of the model's files; two conversions of one model have the same."""
        digests = {}
        for name, digest in self.manifest.files.items():
            if not name.endswith(".md"):  # Pages compute nothing.
                digests[name] = digest.blake3
        return encode_json(dict(sorted(digests.items()))) + self._changes

    @property
    def identity(self) -> bytes:
        """Bytes that differ between models, for keys of caches."""
        manifest = msgspec.structs.replace(self.manifest, evaluations=[])
        return encode_manifest(manifest) + (self.path / CONFIG).read_bytes() + self._changes

    @property
    def _changes(self) -> bytes:
        """What differs from the files: empty, or the tokens with global attention."""
        return b"" if self.global_tokens is None else self.global_tokens.encode()

    @property
    def is_adapter(self) -> bool:
        """``True`` if the directory holds an adapter, without the weights of its base."""
        return self.manifest.adapter is not None

    def sources_in(self, config: Config, head: str) -> dict[str, str]:
        """Return the names of tensors here -> names in a model of the family.

        Tensors correspond if the same tensors of the Hub's checkpoint are their sources.
        """
        model_targets = self.family.weights(config, head).targets()
        names = {}
        for sources, target in self.weights.targets().items():
            if sources in model_targets:
                names[target] = model_targets[sources]
        return names

    @property
    def is_export(self) -> bool:
        """``True`` if the directory is an export: files of another runtime."""
        return self.manifest.export is not None

    @property
    def export_target(self) -> str | None:
        """Name of the export target whose files the directory holds; ``None`` for weights."""
        if self.manifest.export is None:
            return None
        target = self.manifest.export.get("target", ONNX)
        if not isinstance(target, str):
            raise VerificationError(
                f"{self.path / MANIFEST}: export: target is not a text", "export it again"
            )
        return target

    def read_part(self, field: str, record_type: type[Record]) -> Record:
        """Return an untyped field of the manifest, such as ``account``, as a record of a type."""
        try:
            return msgspec.convert(getattr(self.manifest, field) or {}, record_type)
        except msgspec.ValidationError as error:
            hint = "export it again" if field == "export" else "convert or train it again"
            raise VerificationError(f"{self.path / MANIFEST}: {field}: {error}", hint) from error

    def weight_files(self) -> list[Path]:
        """Return the paths of the safetensors files, sorted by name."""
        if self.is_adapter:
            raise UsageError(
                f"{self.path} is an adapter, without the weights of its base",
                f"`zoo adapter merge {self.path} -o DIR` makes a model of both",
            )
        if not (self.path / WEIGHTS_INDEX).is_file():
            return [self.path / WEIGHTS]
        names = sorted(set(self._index().values()))
        return [safe_join(self.path, name, WEIGHTS_INDEX) for name in names]

    def _index(self) -> dict[str, str]:
        weight_map = read_json_record(self.path / WEIGHTS_INDEX, WeightsIndex).weight_map
        if not weight_map:
            raise VerificationError(f"{self.path / WEIGHTS_INDEX} lists no tensors")
        return weight_map

    def open_weights(self) -> SafetensorsReader:
        """Open the weights, by the parameter names of the model."""
        files = self.weight_files()
        if self.is_export and not any(path.is_file() for path in files):
            export = f"an export to {self.export_target}"
            if self.export_target == ONNX:
                export = "an ONNX export"
            raise SourceError(
                f"{self.path} is {export} without the weights of its model",
                "give the model that it was exported from",
            )
        reader = SafetensorsReader(files)
        if (self.path / WEIGHTS_INDEX).is_file():
            index = self._index()
            files_by_name = {name: reader.file_of(name).name for name in reader.tensors}
            for name in index.keys() | files_by_name.keys():
                if index.get(name) != files_by_name.get(name):
                    raise VerificationError(
                        f"{self.path / WEIGHTS_INDEX}: {name} is listed in {index.get(name)} and "
                        f"stored in {files_by_name.get(name)}",
                        "convert it again",
                    )
        return reader

    def require_unchanged(self) -> None:
        """Compare configuration, tokenizer and weights with the digests of the manifest.

        Files that did not change since their last comparison are not read; see
        ``zoo.io.digests.verified``.
        """
        paths = []
        for name in (CONFIG, TOKENIZER, WEIGHTS_INDEX):
            if name in self.manifest.files:
                paths.append(self.path / name)
        for path in (*paths, *self.weight_files()):
            digest = self.manifest.files.get(path.name)
            require_blake3(path, digest.blake3 if digest else None, self.path / MANIFEST)
        for name in module_weight_files(self.model.pooling):
            self._require_unchanged(name)

    @property
    def module_holder(self) -> "Checkpoint":
        """The checkpoint whose directory has the weights of the modules of a sentence encoder."""
        return self

    def module_weights(self) -> "ModuleWeights":
        """Return folder -> name -> weight of the modules of a sentence encoder, in float32."""
        holder = self.module_holder
        for name in module_weight_files(self.model.pooling):
            holder._require_unchanged(name)
        return read_module_weights(holder.path, self.model.pooling)

    def _require_unchanged(self, name: str) -> None:
        digest = self.manifest.files.get(name)
        path = safe_join(self.path, name, MANIFEST)
        require_blake3(path, digest.blake3 if digest else None, self.path / MANIFEST)


def is_checkpoint(path: Path) -> bool:
    """Return ``True`` if a directory is a checkpoint in the zoo's layout."""
    return (path / MANIFEST).is_file()


def load_checkpoint(path: Path) -> Checkpoint:
    """Read the records of a checkpoint."""
    manifest = read_json_record(path / MANIFEST, Manifest)
    _require_version(path / MANIFEST, manifest.zoo)
    if manifest.export is None:
        file = path / CONFIG
        model = read_json_record(file, ModelFile)
    elif manifest.model is None:
        raise VerificationError(f"{path} is an export in an older layout", "export it again")
    else:
        check_manifest(path)  # The digests of files do not cover the configuration within it.
        file = path / MANIFEST
        model = manifest.model
    _require_version(file, model.zoo)
    family = get_family(model.family, str(file))
    if model.head not in family.heads():
        raise VerificationError(f"{file}: {model.family} has no head {model.head!r}")
    try:
        config = msgspec.convert(model.config, family.config_type)
    except (msgspec.ValidationError, ArithmeticError, TypeError, ValueError) as error:
        raise VerificationError(f"{file}: config: {error}") from error
    return Checkpoint(path, model, manifest, family, config)


def _require_version(file: Path, version: int) -> None:
    if version > FORMAT_VERSION:
        raise VerificationError(f"{file} is of layout {version}", "install a newer plm-zoo")
