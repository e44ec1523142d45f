"""Records and file names of a checkpoint directory."""

from collections.abc import Mapping
from typing import Any

import msgspec

from zoo.io.digests.files import FileDigest
from zoo.io.digests.sealed import NO_DIGEST, add_digest
from zoo.io.json import JsonStruct, encode_json
from zoo.io.limits import MAX_JSON_BYTES, check_limit
from zoo.tokenizers.cross_encoder import ScoreActivation
from zoo.tokenizers.info import TokenizerInfo
from zoo.tokenizers.pooling import Pooling

CONFIG, MANIFEST, TOKENIZER = "config.json", "zoo.json", "tokenizer.json"
WEIGHTS, WEIGHTS_INDEX = "model.safetensors", "model.safetensors.index.json"
# Files of an ONNX export, by the names that readers of the Hub's layout look for.
GRAPH = "onnx/model.onnx"  # of a model that is one graph
ENCODER, DECODER = "onnx/encoder_model.onnx", "onnx/decoder_model_merged.onnx"  # of two graphs
DATA = ".onnx_data"  # suffix of the files with the weights of ONNX graphs
# dtype of a graph -> suffix of its file name
VARIANTS = {"float32": "", "float16": "_fp16", "int8": "_quantized", "int4": "_q4"}
FORMAT_VERSION = 1


def variant_file(file: str, dtype: str) -> str:
    """Return the name of a graph in a dtype, such as ``onnx/model_fp16.onnx``."""
    return file.replace(".onnx", f"{VARIANTS[dtype]}.onnx")


class ModelFile(JsonStruct):
    """Contents of ``config.json``: the architecture and its configuration.

    In an export, where ``config.json`` is that of the Hub's layout, it is in the manifest.

    Attributes:
        zoo: version of the format.
        family: name of the family.
        head: name of the head.
        config: configuration of the family, by its field names.
        tokenizer: special tokens and maximum length, if there is a ``tokenizer.json``.
        pooling: pooling of a sentence encoder; ``None`` for other models.
        transitions: transitions of a linear-chain CRF over the labels, (labels + 1, labels + 1),
            see ``zoo.nn.layers.crf``; ``None`` for other models. They are no tensor of the model,
            whose outputs are the same without them.
        both_orders: whether the logits of a pair of texts are the sum of those of both orders.
        score_activation: function that makes a score of a single logit, of a cross-encoder of
            sentence-transformers; ``None`` for other models, whose score is the logit.
        generation: settings of generation by their names in ``generation_config.json``, see
            ``zoo.checkpoint.generation_config``; empty for models that do not generate.
    """

    zoo: int
    family: str
    head: str
    config: dict[str, Any]
    tokenizer: TokenizerInfo | None = None
    pooling: Pooling | None = None
    transitions: list[list[float]] | None = None
    both_orders: bool = False
    score_activation: ScoreActivation | None = None
    generation: dict[str, Any] = msgspec.field(default_factory=dict)


class SourceRecord(JsonStruct):
    """Source of the weights of a converted checkpoint.

    Attributes:
        reference: model reference given by the user.
        repo: Hub repository, if the weights come from one.
        revision: commit hash that the reference was resolved to.
        format: name of the file format that was read.
        files: file name -> digest, of every file that was read.
        extra_config: keys of the Hub's ``config.json`` without a field of their own, which
            conversion to the Hub's layout writes back unchanged.
    """

    reference: str
    repo: str | None = None
    revision: str | None = None
    format: str | None = None
    files: dict[str, FileDigest] = msgspec.field(default_factory=dict)
    extra_config: dict[str, Any] = msgspec.field(default_factory=dict)


class EvaluationRecord(JsonStruct):
    """Result of an evaluation of a model.

    Attributes:
        task: name of the evaluation, see ``zoo eval``.
        data: file name -> digest, of the files of the data; names are relative to the directory
            that they have in common.
        settings: options of the evaluation, such as columns.
        backend: backend that the model ran on.
        dtype: dtype of the computation.
        metrics: name -> value.
        intervals: name of a metric -> ends of its bootstrap interval of 95 %.
        created_by: version of this distribution.
    """

    task: str
    data: dict[str, FileDigest]
    metrics: dict[str, float]
    settings: dict[str, Any] = msgspec.field(default_factory=dict)
    backend: str = ""
    dtype: str = ""
    intervals: dict[str, tuple[float, float]] = msgspec.field(default_factory=dict)
    created_by: str = ""

    def is_repeated_by(self, other: "EvaluationRecord") -> bool:
        """Return whether another record is of the same task, data, settings and computation."""
        fields = ("task", "data", "settings", "backend", "dtype")
        return all(getattr(self, name) == getattr(other, name) for name in fields)


class Manifest(JsonStruct):
    """Contents of ``zoo.json``: provenance, digests and results of checks.

    Attributes:
        zoo: version of the format.
        digest: BLAKE3 digest of this file, see ``zoo.io.digests.sealed``; empty in checkpoints
            of versions that wrote none.
        created_by: name -> version, of this distribution and of the plugin's.
        licence: licence that the registry or the repository states.
        source: source of the weights; ``None`` if they were trained here.
        files: file name -> digest, of every other file of the directory.
        dtypes: dtype -> number of tensors.
        source_dtypes: tensor of the Hub's layout -> its dtype, for tensors of several dtypes that
            are one tensor here; ``zoo convert --to hub`` restores them.
        ties: tensor of the Hub's layout -> tensor that it shares its storage with.
        account: tensors of the source: mapped, dropped, tied, cast; see ``ConversionReport``.
        round_trip: ``exact`` if all tensors of the source were rebuilt bit for bit, ``partial`` if
            some were left out, ``rounded`` if ``--dtype`` rounded them.
        export: results of the export checks, in a directory with an ONNX graph.
        model: contents of the ``config.json`` of the model that was exported.
        training: data, seed, steps and metrics of a model that was trained here.
        evaluations: results of ``zoo eval``, which adds to them after the directory was written.
    """

    zoo: int
    created_by: dict[str, str]
    files: dict[str, FileDigest]
    digest: str = ""
    source: SourceRecord | None = None
    licence: str | None = None
    dtypes: dict[str, int] = msgspec.field(default_factory=dict)
    source_dtypes: dict[str, str] = msgspec.field(default_factory=dict)
    ties: dict[str, str] = msgspec.field(default_factory=dict)
    account: dict[str, Any] = msgspec.field(default_factory=dict)
    round_trip: str | None = None
    export: dict[str, Any] | None = None
    model: ModelFile | None = None
    training: dict[str, Any] | None = None
    evaluations: list[EvaluationRecord] = msgspec.field(default_factory=list)

    @property
    def base_licence(self) -> str | None:
        """Licence of the pretrained model that was trained further; ``None`` if not recorded."""
        value: Any = self.training
        for key in ("init_from", "models", "model", "licence"):
            value = value.get(key) if isinstance(value, Mapping) else None
        return value if isinstance(value, str) else None


class WeightsIndex(msgspec.Struct):
    """Contents of ``model.safetensors.index.json``.

    Attributes:
        weight_map: tensor name -> name of the shard that holds it.
    """

    weight_map: dict[str, str]


def encode_manifest(manifest: Manifest) -> bytes:
    """Return a manifest as JSON, with its digest.

    Raises:
        VerificationError: the manifest could not be read back; see ``encode_json``.
    """
    text = encode_json(msgspec.structs.replace(manifest, digest=NO_DIGEST))
    check_limit(MANIFEST, "size of the JSON file in bytes", len(text), MAX_JSON_BYTES)
    return add_digest(text)
