"""The zoo's checkpoint: a directory with ``config.json``, ``model.safetensors``,
``tokenizer.json`` and the manifest ``zoo.json``.

This module reads and describes it. It imports no torch.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar

import msgspec

from zoo.errors import VerificationError
from zoo.families.base import Family, Head
from zoo.families.config import Config
from zoo.io.digests.sealed import NO_DIGEST, add_digest
from zoo.io.digests.verified import require_blake3
from zoo.io.json import read_json_record
from zoo.io.paths import safe_join
from zoo.io.tensors.safetensors import SafetensorsReader
from zoo.plugins import get_family
from zoo.weights import WeightMap

CONFIG, MANIFEST, TOKENIZER = "config.json", "zoo.json", "tokenizer.json"
WEIGHTS, WEIGHTS_INDEX = "model.safetensors", "model.safetensors.index.json"
GRAPH = "model.onnx"
ENCODER, DECODER = "encoder_model.onnx", "decoder_with_past_model.onnx"  # in place of the one
DATA = ".onnx.data"  # how a file ends that holds a graph's weights
FORMAT_VERSION = 1


class JsonStruct(msgspec.Struct, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Base of what is stored as JSON: an unknown key is an error."""


class Pooling(JsonStruct):
    """How token vectors become one sentence vector, as sentence-transformers describes it.

    Attributes:
        mode: ``mean`` over tokens, the first (``cls``), ``max``, ``mean_sqrt_len_tokens``,
            ``weightedmean`` (by position) or ``lasttoken``.
        normalize: scale to unit length.
        max_tokens: texts are cut at this many tokens; ``None`` for the model's own limit.
        lowercase: lower-case the text before the tokenizer sees it.
    """

    mode: Literal["mean", "cls", "max", "mean_sqrt_len_tokens", "weightedmean", "lasttoken"] = (
        "mean"
    )
    normalize: bool = False
    max_tokens: int | None = None
    lowercase: bool = False


class TokenizerInfo(JsonStruct):
    """What ``tokenizer.json`` does not say.

    Attributes:
        special: role (``pad``, ``mask``, ``cls``, ``sep``, ``unk``, ``bos``, ``eos``) -> token.
        max_tokens: the longest input that the model was made for, or ``None``.
    """

    special: dict[str, str]
    max_tokens: int | None = None


class ModelFile(JsonStruct):
    """``config.json``: what the model is.

    Attributes:
        zoo: version of this layout.
        family: the family's name.
        head: the head's name.
        config: the family's configuration, by our field names.
        tokenizer: present if ``tokenizer.json`` is.
        pooling: present if the checkpoint is a sentence encoder.
    """

    zoo: int
    family: str
    head: str
    config: dict[str, Any]
    tokenizer: TokenizerInfo | None = None
    pooling: Pooling | None = None


class FileDigest(JsonStruct):
    """A file at the time it was read or written.

    Attributes:
        bytes: its length.
        blake3: its BLAKE3 digest.
        sha256: the Hub's SHA-256, where it publishes one and it was checked.
    """

    bytes: int
    blake3: str
    sha256: str | None = None


class SourceRecord(JsonStruct):
    """Where the weights came from.

    Attributes:
        reference: what the user asked for.
        repo: the Hub repository, if any.
        revision: the commit it was resolved to.
        format: the file format that was read.
        files: every file that was read.
        extra_config: keys of the Hub's ``config.json`` to write back unchanged.
        prefix: what stood in front of the trunk's tensor names.
    """

    reference: str
    repo: str | None = None
    revision: str | None = None
    format: str | None = None
    files: dict[str, FileDigest] = {}
    extra_config: dict[str, Any] = {}


class Manifest(JsonStruct):
    """``zoo.json``: where a checkpoint came from and what was shown about it.

    Attributes:
        zoo: version of this layout.
        digest: of this file, see ``zoo.io.digests.sealed``; empty in those of versions that had none.
        created_by: version of the distribution that wrote it, and of the plugin.
        licence: the licence that the registry or the repository states.
        source: what was read.
        files: every other file of the directory.
        dtypes: dtype -> how many tensors have it.
        ties: tensors of the Hub's layout that are other names of stored ones.
        account: counts and reasons of the conversion.
        round_trip: ``exact`` once the Hub's tensors were rebuilt from ours, bit for bit.
        export: results of the export gate, in a directory with an ONNX graph.
        training: data, seed, steps and metrics of a model that was trained here.
    """

    zoo: int
    created_by: dict[str, str]
    files: dict[str, FileDigest]
    digest: str = ""
    source: SourceRecord | None = None
    licence: str | None = None
    dtypes: dict[str, int] = {}
    ties: dict[str, str] = {}
    account: dict[str, Any] = {}
    round_trip: str | None = None
    export: dict[str, Any] | None = None
    training: dict[str, Any] | None = None


class WeightsIndex(msgspec.Struct):
    """``model.safetensors.index.json``.

    Attributes:
        weight_map: tensor -> the file that holds it.
    """

    weight_map: dict[str, str]


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint on disk, described but not loaded.

    Attributes:
        path: its directory.
        model: the contents of ``config.json``.
        manifest: the contents of ``zoo.json``.
        family: the plugin's family.
        config: the family's configuration.
    """

    path: Path
    model: ModelFile
    manifest: Manifest
    family: Family
    config: Config

    @property
    def head_name(self) -> str:
        """The head's name."""
        return self.model.head

    @property
    def head(self) -> Head:
        """The head's description."""
        return self.family.heads()[self.model.head]

    @property
    def weights(self) -> WeightMap:
        """The family's rules for this configuration and head."""
        return self.family.weights(self.config, self.model.head)

    @property
    def graph(self) -> Path | None:
        """The ONNX graph, if the directory holds one; the decoder's, if it holds two."""
        paths = (self.path / name for name in (GRAPH, DECODER))
        return next((path for path in paths if path.is_file()), None)

    def weight_files(self) -> list[Path]:
        """Return the safetensors files, checked against the index.

        Raises:
            VerificationError: the index names a file that is missing or outside.
        """
        if not (self.path / WEIGHTS_INDEX).is_file():
            return [self.path / WEIGHTS]
        names = sorted(set(self._index().values()))
        return [safe_join(self.path, name, WEIGHTS_INDEX) for name in names]

    def _index(self) -> dict[str, str]:
        weight_map = decode(self.path / WEIGHTS_INDEX, WeightsIndex).weight_map
        if not weight_map:
            raise VerificationError(f"{self.path / WEIGHTS_INDEX} lists no tensors")
        return weight_map

    def open_weights(self) -> SafetensorsReader:
        """Open the weights, in our names.

        Raises:
            VerificationError: a file is damaged, or the index and the shards do not agree.
        """
        reader = SafetensorsReader(self.weight_files())
        if (self.path / WEIGHTS_INDEX).is_file():
            self._check_index(reader)
        return reader

    def require_unchanged(self) -> None:
        """Compare configuration, tokenizer and weights with the digests of the manifest.

        Files that did not change since they were last compared are not read; see
        ``zoo.io.digests.verified``.

        Raises:
            SourceError: a file is missing.
            VerificationError: a file is not what the manifest says, or is not in it.
        """
        names = [name for name in (CONFIG, TOKENIZER, WEIGHTS_INDEX) if name in self.manifest.files]
        for path in (*(self.path / name for name in names), *self.weight_files()):
            digest = self.manifest.files.get(path.name)
            require_blake3(path, digest.blake3 if digest else None, self.path / MANIFEST)

    def _check_index(self, reader: SafetensorsReader) -> None:
        listed = self._index()
        found = {name: reader.file_of(name).name for name in reader.tensors}
        for name in listed.keys() | found.keys():
            if listed.get(name) != found.get(name):
                raise VerificationError(
                    f"{self.path / WEIGHTS_INDEX}: {name} is listed in {listed.get(name)} and "
                    f"stored in {found.get(name)}",
                    "convert it again",
                )


def is_checkpoint(path: Path) -> bool:
    """Whether a directory is in the zoo's own layout."""
    return (path / MANIFEST).is_file()


def load_checkpoint(path: Path) -> Checkpoint:
    """Read a checkpoint's description.

    Raises:
        SourceError: a file is missing.
        VerificationError: a file does not decode, or is of a newer layout.
        PluginError, UsageError: the family's plugin is broken or not installed.
    """
    model = decode(path / CONFIG, ModelFile)
    manifest = decode(path / MANIFEST, Manifest)
    for name, layout in ((CONFIG, model.zoo), (MANIFEST, manifest.zoo)):
        if layout > FORMAT_VERSION:
            raise VerificationError(
                f"{path / name} is of layout {layout}", "install a newer plm-zoo"
            )
    family = get_family(model.family, str(path / CONFIG))
    if model.head not in family.heads():
        raise VerificationError(f"{path / CONFIG}: {model.family} has no head {model.head!r}")
    try:
        config = msgspec.convert(model.config, family.config_type)
    except (msgspec.ValidationError, ArithmeticError, TypeError, ValueError) as error:
        raise VerificationError(f"{path / CONFIG}: config: {error}") from error
    return Checkpoint(path, model, manifest, family, config)


Decoded = TypeVar("Decoded")


def decode(path: Path, kind: type[Decoded]) -> Decoded:
    """Read a JSON file as a typed value.

    Raises:
        SourceError: it cannot be read.
        VerificationError: it is not JSON, or a field is unknown, missing or of another type.
    """
    return read_json_record(path, kind)


def encode(value: Any) -> bytes:
    """Return a value as JSON, indented, ending in a newline; a manifest gets its digest."""
    if isinstance(value, Manifest) and value.digest != NO_DIGEST:
        return add_digest(encode(msgspec.structs.replace(value, digest=NO_DIGEST)))
    return msgspec.json.format(msgspec.json.encode(value), indent=2) + b"\n"
