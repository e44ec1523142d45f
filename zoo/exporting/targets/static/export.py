"""Distillation of an encoder into static embeddings."""

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
from safetensors.numpy import save_file

from zoo.checkpoint import CONFIG, TOKENIZER, WEIGHTS, Checkpoint, SourceRecord, load_checkpoint
from zoo.conversion.convert import convert
from zoo.errors import UsageError
from zoo.exporting.report import ExportReport
from zoo.exporting.targets.base import WrittenModel
from zoo.exporting.targets.static.options import StaticOptions
from zoo.exporting.targets.static.vectors import mean, static_vectors
from zoo.exporting.targets.static.vocabulary import vocabulary_of
from zoo.hub.source import CheckpointDir
from zoo.inference.torch_session import TorchSession
from zoo.io.json import encode_json
from zoo.io.scratch import scratch_directory
from zoo.io.tensors.finite import require_finite
from zoo.overrides import override
from zoo.plugins import iter_families
from zoo.sentence_models import hub_pooling_files
from zoo.sentence_models.pooling import Pooling
from zoo.sentence_models.sentence_transformers_files import STATIC
from zoo.tokenizers.source_files import SourceFiles
from zoo.tokenizers.tokenizer_json import load

if TYPE_CHECKING:
    from zoo.exporting.targets.static.vectors import Pool
    from zoo.families.base import Family
    from zoo.inference.session import Session

DTYPES = {"float32": np.float32, "float16": np.float16}


class StaticVectors(WrittenModel[ExportReport]):
    """A model of static embeddings, whose own files are in a temporary directory."""

    def __init__(
        self, checkpoint: Checkpoint, details: Mapping[str, Any], scratch: ExitStack
    ) -> None:
        super().__init__(checkpoint, details)
        self._scratch = scratch

    @override
    def close(self) -> None:
        self._scratch.close()


def write_vectors(
    checkpoint: Checkpoint, directory: Path, options: StaticOptions, precision: str
) -> StaticVectors:
    """Distil a model into static embeddings, and write their vectors."""
    with ExitStack() as stack:
        scratch = stack.enter_context(scratch_directory(is_only_folder=False))
        embeddings = distil(
            checkpoint,
            TorchSession(checkpoint, dtype="float32"),
            scratch,
            precision,
            dim=options.dim,
            sif_coefficient=options.sif_coefficient or None,
        )
        (directory / WEIGHTS).write_bytes((scratch / "hub" / WEIGHTS).read_bytes())
        return StaticVectors(embeddings, {"tensors": {precision: 1}}, stack.pop_all())


def distil(
    checkpoint: Checkpoint,
    teacher: "Session",
    scratch: Path,
    precision: str,
    *,
    dim: int | None,
    sif_coefficient: float | None,
    pool: "Pool" = mean,
) -> Checkpoint:
    """Return a checkpoint of static embeddings in the zoo's layout; see ``static_vectors``."""
    info = checkpoint.model.tokenizer
    if info is None or checkpoint.family.text_tokenizer(checkpoint.config) is not None:
        raise UsageError(
            f"{checkpoint.name} has no tokenizer whose tokens could have vectors",
            "`zoo convert ... --tokenizer REF` adds one",
        )
    if info.splitter is not None:
        raise UsageError(
            f"{checkpoint.name} has texts that {info.splitter.tool} splits, which static "
            "embeddings do not do",
            "export it to ONNX",
        )
    tokenizer = load(SourceFiles(checkpoint.tokenizer_file.parent))
    vocabulary = vocabulary_of(tokenizer, info.special.get("pad"))
    vectors = static_vectors(teacher, vocabulary, dim, sif_coefficient, pool)
    family = static_family()
    vocab_size, hidden_size = vectors.shape
    shape: dict[str, Any] = {"vocab_size": vocab_size, "hidden_size": hidden_size}
    config = family.config_type(**shape)
    name = next(iter(family.weights(config, "none").entries())).sources[0]
    hub = scratch / "hub"
    hub.mkdir()
    with np.errstate(over="ignore"):
        table = np.ascontiguousarray(vectors, DTYPES[precision])
    require_finite({"a vector": table}, f"--dtype {precision}", "choose float32")
    save_file({name: table}, hub / WEIGHTS)
    keys = {
        "model_type": family.model_types[0],
        "apply_pca": dim,
        "sif_coefficient": sif_coefficient,
        **family.sentence_keys(_POOLING),
    }
    files = {
        CONFIG: encode_json(keys),
        TOKENIZER: encode_json(vocabulary.definition),
        **hub_pooling_files(_POOLING, hidden_size, family.sentence_module),
    }
    for file, content in files.items():
        (hub / file).parent.mkdir(parents=True, exist_ok=True)
        (hub / file).write_bytes(content)
    convert(CheckpointDir(hub, str(hub)), scratch / "model")
    return _with_source(load_checkpoint(scratch / "model"), checkpoint)


# The vectors of texts are not the encoder's, so that its prompts and modules do not apply.
_POOLING = Pooling(normalize=True)


def static_family() -> "Family":
    """Return the family of static embeddings."""
    for family in iter_families():
        if family.sentence_module == STATIC:
            return family
    raise UsageError("no installed family has static embeddings", "see `zoo plugins`")


def _with_source(static: Checkpoint, teacher: Checkpoint) -> Checkpoint:
    """Return a checkpoint with source, licence, languages and tags of its teacher."""
    assert static.manifest.source is not None, "it was converted"
    teacher_source = teacher.manifest.source or SourceRecord(reference=str(teacher.path))
    source = msgspec.structs.replace(
        teacher_source,
        extra_config=static.manifest.source.extra_config,
    )
    manifest = msgspec.structs.replace(
        static.manifest,
        source=source,
        licence=teacher.manifest.licence,
        languages=teacher.manifest.text_languages,
        tags=teacher.manifest.tags,
    )
    return replace(static, manifest=manifest)
