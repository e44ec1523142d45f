"""Records and file names of a checkpoint directory."""

from collections.abc import Mapping
from typing import Any

import msgspec
from blake3 import blake3

from zoo.io.digests.files import FileDigest
from zoo.io.digests.self_digest import NO_DIGEST, add_digest
from zoo.io.json import JsonStruct, encode_json
from zoo.io.limits import MAX_JSON_BYTES
from zoo.io.sizes import check_size
from zoo.sentence_models.cross_encoder_files import PairSettings
from zoo.sentence_models.modules import ActivationName
from zoo.sentence_models.pooling import Pooling
from zoo.tokenizers.info import TokenizerInfo

CONFIG = "config.json"
MANIFEST = "zoo.json"
TOKENIZER = "tokenizer.json"
WEIGHTS = "model.safetensors"
WEIGHTS_INDEX = "model.safetensors.index.json"
ADAPTER = "adapter.safetensors"  # weights of an adapter, in place of a model's
# Files of an ONNX export, by the names that readers of the Hub's layout look for.
GRAPH = "onnx/model.onnx"  # of a model that is one graph
# of two graphs
ENCODER = "onnx/encoder_model.onnx"
DECODER = "onnx/decoder_model_merged.onnx"
DATA = ".onnx_data"  # suffix of the files with the weights of ONNX graphs
# dtype of a graph -> suffix of its file name
VARIANTS = {"float32": "", "float16": "_fp16", "int8": "_quantized", "int4": "_q4"}
FORMAT_VERSION = 1


def variant_file(file: str, dtype: str) -> str:
    """Return the name of a graph in a dtype, such as ``onnx/model_fp16.onnx``."""
    return file.replace(".onnx", f"{VARIANTS[dtype]}.onnx")


# Entries of a manifest's ``account`` that say how positions were added.
GROWN_POSITIONS = "grown_positions"
LENGTHENED = "lengthened"


def growth_records(account: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a manifest's ``account`` says of positions that were added to the model."""
    return {name: account[name] for name in (GROWN_POSITIONS, LENGTHENED) if name in account}


class ModelFile(JsonStruct):
    """Contents of ``config.json``: the architecture and its configuration."""

    # In an export, where ``config.json`` has the Hub's layout, the manifest holds it.

    zoo: int  # version of the format
    family: str
    head: str
    config: dict[str, Any]  # configuration of the family, by its field names
    # special tokens and maximum length, if there is a ``tokenizer.json``
    tokenizer: TokenizerInfo | None = None
    pooling: Pooling | None = None  # pooling of a sentence encoder; ``None`` for other models
    # transitions of a linear-chain CRF over the labels, (labels + 1, labels + 1), see
    # ``zoo.nn.layers.crf``. They are not a tensor of the model, whose outputs do not depend on them
    transitions: list[list[float]] | None = None
    # whether the logits of a pair of texts are summed over both orders
    both_orders: bool = False
    # turns the single logit of a cross-encoder into a score; ``None`` leaves the logit as it is
    score_activation: ActivationName | None = None
    # prompts and length of the pairs of a cross-encoder, and how a language model scores them;
    # ``None`` for none
    pairs: PairSettings | None = None
    # settings of generation by their names in ``generation_config.json``, see
    # ``zoo.checkpoint.generation_config``; empty for models that do not generate
    generation: dict[str, Any] = msgspec.field(default_factory=dict)

    @property
    def max_tokens(self) -> int | None:
        """Maximum length of a text or a pair in tokens that the files state; ``None`` for none."""
        # As in sentence-transformers, the ``max_seq_length`` of its files takes the place of the
        # tokenizer's ``model_max_length``, even where it is larger.
        for settings in (self.pooling, self.pairs, self.tokenizer):
            if settings is not None and settings.max_tokens is not None:
                return settings.max_tokens
        return None


class SourceRecord(JsonStruct):
    """Source of the weights of a converted checkpoint."""

    reference: str  # model reference given by the user
    repo: str | None = None  # Hub repository, if the weights come from one
    revision: str | None = None  # commit hash that the reference was resolved to
    format: str | None = None
    # file name -> digest, of every file that was read
    files: dict[str, FileDigest] = msgspec.field(default_factory=dict)
    # keys of the Hub's ``config.json`` without a field of their own, which conversion to the Hub's
    # layout writes back unchanged
    extra_config: dict[str, Any] = msgspec.field(default_factory=dict)


class MappingRecord(msgspec.Struct):
    """The fields of a manifest's ``account`` that commands read; older releases wrote fewer."""

    rebuilt: str | None = None  # how many tensors of the source were rebuilt
    dropped: dict[str, str] = msgspec.field(default_factory=dict)  # tensor of the source -> reason
    # tensor of the source -> tensor that it shares its values with
    tied: dict[str, str] = msgspec.field(default_factory=dict)
    aliases: dict[str, str] = msgspec.field(default_factory=dict)
    tied_equal: bool | None = None  # whether tied tensors were compared and are equal
    # change of dtype -> number of tensors
    cast: dict[str, int] = msgspec.field(default_factory=dict)
    initialised: list[str] = msgspec.field(default_factory=list)  # tensors with random weights
    # files of the source with a trained head that was not read, where the result has a new one
    replaced_heads: list[str] = msgspec.field(default_factory=list)
    # file of the source with weights or labels that was not read -> the reason
    unread_files: dict[str, str] = msgspec.field(default_factory=dict)


class EvaluationRecord(JsonStruct):
    """Result of an evaluation of a model."""

    task: str  # name of the evaluation, see ``zoo eval``
    # file name -> digest, of the files of the data; names are relative to the directory that they
    # have in common
    data: dict[str, FileDigest]
    metrics: dict[str, float]
    # options of the evaluation, such as columns
    settings: dict[str, Any] = msgspec.field(default_factory=dict)
    backend: str = ""  # backend that the model ran on
    dtype: str = ""  # dtype of the computation
    # name of a metric -> ends of its bootstrap interval of 95 %
    intervals: dict[str, tuple[float, float]] = msgspec.field(default_factory=dict)
    # name of a metric -> what makes it reproducible, such as the settings of sacrebleu
    signatures: dict[str, str] = msgspec.field(default_factory=dict)
    created_by: str = ""  # version of this distribution

    def is_repeated_by(self, other: "EvaluationRecord") -> bool:
        """Return whether another record has the same task, data, settings and computation."""
        fields = ("task", "data", "settings", "backend", "dtype")
        return all(getattr(self, name) == getattr(other, name) for name in fields)


class BaseRecord(JsonStruct):
    """The model that an adapter changes."""

    reference: str  # reference to its checkpoint; a directory as an absolute path
    weights: str  # digest of its weights, see ``weights_digest``
    head: str
    source: SourceRecord | None = None  # where its weights are from
    licence: str | None = None
    languages: list[str] = msgspec.field(default_factory=list)  # see ``Manifest.languages``


class AdapterRecord(JsonStruct):
    """An adapter: its method and its base."""

    settings: dict[str, Any]  # name of the method, and its settings; see ``zoo.adapters``
    base: BaseRecord


def weights_digest(files: Mapping[str, FileDigest]) -> str:
    """Return the BLAKE3 digest of the weights of a checkpoint, by the digests of its files."""
    names = sorted(name for name in files if name.endswith(".safetensors"))
    return blake3("".join(files[name].blake3 for name in names).encode()).hexdigest()


class Manifest(JsonStruct):
    """Contents of ``zoo.json``: provenance, digests and results of checks."""

    zoo: int  # version of the format
    created_by: dict[str, str]  # name -> version, of this distribution and of the plugin's
    files: dict[str, FileDigest]  # file name -> digest, of every other file of the directory
    # BLAKE3 of this file, see ``zoo.io.digests.self_digest``; empty in checkpoints of versions
    # that wrote none
    digest: str = ""
    source: SourceRecord | None = None  # source of the weights; ``None`` if they were trained here
    licence: str | None = None  # licence that the registry or the repository states
    # languages that the registry or the repository states, as the Hub's model cards do: ISO 639
    # codes, or ``multilingual``
    languages: list[str] = msgspec.field(default_factory=list)
    tags: list[str] = msgspec.field(default_factory=list)  # those of the source's model card
    dtypes: dict[str, int] = msgspec.field(default_factory=dict)  # dtype -> number of tensors
    # tensor of the Hub's layout -> its dtype, for tensors of several dtypes that are one tensor
    # here; ``zoo convert --to hub`` restores them
    source_dtypes: dict[str, str] = msgspec.field(default_factory=dict)
    # tensor of the Hub's layout -> tensor that it shares its storage with
    ties: dict[str, str] = msgspec.field(default_factory=dict)
    # tensors of the source: mapped, dropped, tied, cast; see ``ConversionReport``
    account: dict[str, Any] = msgspec.field(default_factory=dict)
    # ``exact`` if all tensors of the source were rebuilt bit for bit, ``partial`` if some were left
    # out, ``rounded`` if ``--dtype`` rounded them
    round_trip: str | None = None
    # results of the export checks, in a directory with an ONNX graph
    export: dict[str, Any] | None = None
    model: ModelFile | None = None  # contents of the ``config.json`` of the model that was exported
    # data, seed, steps and metrics of a model that was trained here
    training: dict[str, Any] | None = None
    # method and base of an adapter; ``None`` for a whole model
    adapter: AdapterRecord | None = None
    # results of ``zoo eval``, which adds to them after the directory was written
    evaluations: list[EvaluationRecord] = msgspec.field(default_factory=list)

    @property
    def base_licence(self) -> str | None:
        """Licence of the pretrained model that was trained further; ``None`` if not recorded."""
        value = self._base_value("licence")
        return value if isinstance(value, str) else None

    @property
    def text_languages(self) -> list[str]:
        """Languages of the texts that the model reads, as far as they are known.

        A model that was fine-tuned has the languages of its base. One that was pretrained further
        or distilled may have learned others.
        """
        if self.languages:
            return self.languages
        is_fine_tuned = "task" in (self.training or {})
        base_languages = self._base_value("languages") if is_fine_tuned else None
        if not isinstance(base_languages, list):
            return []
        return [language for language in base_languages if isinstance(language, str)]

    def _base_value(self, name: str) -> Any:
        """Return a fact about the pretrained model that was trained further."""
        value: Any = self.training
        for key in ("init_from", "models", "model", name):
            value = value.get(key) if isinstance(value, Mapping) else None
        return value


class WeightsIndex(msgspec.Struct):
    """Contents of ``model.safetensors.index.json``."""

    weight_map: dict[str, str]  # tensor name -> name of the shard that holds it


def encode_manifest(manifest: Manifest) -> bytes:
    """Return a manifest as JSON, with its digest."""
    text = encode_json(msgspec.structs.replace(manifest, digest=NO_DIGEST))
    check_size(MANIFEST, "size of the JSON file in bytes", len(text), MAX_JSON_BYTES)
    return add_digest(text)
