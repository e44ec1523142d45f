"""Distillation of an encoder into static embeddings, and the gate: both rank texts alike."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
from safetensors.numpy import save_file

from zoo.checkpoint import CONFIG, TOKENIZER, WEIGHTS, Checkpoint, SourceRecord, load_checkpoint
from zoo.conversion.convert import convert
from zoo.errors import UsageError
from zoo.exporting.card import export_card
from zoo.exporting.gate import probe_texts, require_agreement
from zoo.exporting.layout import write_hub_files
from zoo.exporting.quantization.agreement import Summary, rank_correlation, read_texts
from zoo.exporting.quantization.variants import QuantizationPlan
from zoo.exporting.report import Agreement, ExportReport, at_least_0
from zoo.exporting.targets.base import ExportSettings, ExportTarget
from zoo.exporting.targets.static.options import StaticOptions
from zoo.exporting.targets.static.vectors import mean, static_vectors
from zoo.exporting.targets.static.vocabulary import vocabulary_of
from zoo.exporting.weights import check_weights
from zoo.hub.source import CheckpointDir
from zoo.inference.embed import Embed
from zoo.inference.processing.records import as_records
from zoo.inference.torch_session import TorchSession
from zoo.io.json import encode_json
from zoo.io.output.atomic import atomic_directory
from zoo.io.paths import check_unicode
from zoo.io.scratch import scratch_directory
from zoo.io.tensors.finite import require_finite
from zoo.plugins import iter_families
from zoo.sentence_models import hub_pooling_files
from zoo.sentence_models.pooling import Pooling
from zoo.sentence_models.sentence_transformers_files import STATIC
from zoo.tokenizers.source_files import SourceFiles
from zoo.tokenizers.tokenizer_json import load
from zoo.version import package_version

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from zoo.exporting.targets.static.vectors import Pool
    from zoo.families.base import Family
    from zoo.inference.session import Session

UNDECIDED = np.zeros(0)
KINDS = {"float32": np.float32, "float16": np.float16}


def export_static(
    target: ExportTarget,
    options: StaticOptions,
    checkpoint: Checkpoint,
    directory: Path,
    settings: ExportSettings,
) -> ExportReport:
    """Distil a model into static embeddings, and publish them if they rank texts alike."""
    check_unicode(directory.absolute(), "the directory of the export")
    precision = target.check_precision(settings.precision)
    target.require_held(checkpoint)
    plan = settings.quantization or QuantizationPlan((), target.max_drop)
    if plan.metric is not None:
        raise UsageError(
            "static embeddings are compared on texts, and not by a metric",
            "give --eval a text file",
        )
    texts = [*probe_texts(), *read_texts(plan.eval_file)]
    output = atomic_directory(
        directory, force=settings.force, sources=[checkpoint.path], managed=settings.managed
    )
    with output as staging, scratch_directory(is_only_folder=False) as scratch:
        weights = check_weights(checkpoint)
        teacher = TorchSession(checkpoint, dtype="float32")
        made = distil(
            checkpoint,
            teacher,
            scratch,
            precision,
            dim=options.dim,
            sif_coefficient=options.sif_coefficient or None,
        )
        (staging / WEIGHTS).write_bytes((scratch / "hub" / WEIGHTS).read_bytes())
        report = ExportReport(
            target=target.name,
            title=target.title,
            dtype=precision,
            validated=False,
            files=[WEIGHTS],
            bytes=(staging / WEIGHTS).stat().st_size,
            versions={"torch": package_version("torch") or "unknown"},
            weights=weights,
            reason=target.precisions[precision].reason,
            max_drop=plan.max_drop,
            tensors={precision: 1},
        )
        student = target.open(made, staging, precision)
        report.agreement = ranking(checkpoint, teacher, made, student, texts)
        require_agreement(report.agreement, plan.max_drop, "distillation")
        report.validated = True
        write_hub_files(
            made,
            staging,
            dtype=precision,
            card=export_card(made, report, target.card_facts(report), target.usage(made, report)),
            record=report.to_dict(),
            tensors=report.tensors,
        )
    return report


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
    tokenizer = load(SourceFiles(checkpoint.tokenizer_file.parent))
    vocabulary = vocabulary_of(tokenizer, info.special.get("pad"))
    vectors = static_vectors(teacher, vocabulary, dim, sif_coefficient, pool)
    family = static_family()
    shape: dict[str, Any] = dict(zip(("vocab_size", "hidden_size"), vectors.shape, strict=True))
    config = family.config_type(**shape)
    name = next(iter(family.weights(config, "none").entries())).sources[0]
    hub = scratch / "hub"
    hub.mkdir()
    with np.errstate(over="ignore"):
        stored = np.ascontiguousarray(vectors, KINDS[precision])
    require_finite({"a vector": stored}, f"--dtype {precision}", "choose float32")
    save_file({name: stored}, hub / WEIGHTS)
    keys = {
        "model_type": family.model_types[0],
        "apply_pca": dim,
        "sif_coefficient": sif_coefficient,
        **family.sentence_keys(_POOLING),
    }
    files = {
        CONFIG: encode_json(keys),
        TOKENIZER: encode_json(vocabulary.definition),
        **hub_pooling_files(_POOLING, vectors.shape[1], family.sentence_module),
    }
    for file, content in files.items():
        (hub / file).parent.mkdir(exist_ok=True)
        (hub / file).write_bytes(content)
    convert(CheckpointDir(hub, str(hub)), scratch / "model")
    return _described(load_checkpoint(scratch / "model"), checkpoint)


# neither prompts nor modules of the encoder, whose vectors of texts these are not
_POOLING = Pooling(normalize=True)


def static_family() -> "Family":
    """Return the family of static embeddings."""
    found = [family for family in iter_families() if family.sentence_module == STATIC]
    if not found:
        raise UsageError("no installed family has static embeddings", "see `zoo plugins`")
    return found[0]


def _described(made: Checkpoint, teacher: Checkpoint) -> Checkpoint:
    """Return a checkpoint with the source and the licence of its teacher."""
    assert made.manifest.source is not None, "it was converted"
    before = teacher.manifest.source
    source = msgspec.structs.replace(
        before or SourceRecord(reference=str(teacher.path)),
        extra_config=made.manifest.source.extra_config,
    )
    changes: dict[str, Any] = {"source": source, "licence": teacher.manifest.licence}
    return replace(made, manifest=msgspec.structs.replace(made.manifest, **changes))


def ranking(
    checkpoint: Checkpoint,
    teacher: "Session",
    made: Checkpoint,
    student: "Session",
    texts: list[str],
) -> Agreement:
    """Return how alike two models rank texts by the cosine of their embeddings."""
    expected, actual = (
        Summary(vectors.astype(np.float64), UNDECIDED.astype(np.int64), UNDECIDED, UNDECIDED)
        for vectors in (_vectors(checkpoint, teacher, texts), _vectors(made, student, texts))
    )
    found = rank_correlation([expected], [actual], "cosine")
    if found is None:
        raise UsageError(
            f"{checkpoint.name} gives all texts the same similarities, which ranks nothing",
            "give --eval FILE with other texts",
        )
    return Agreement(texts=len(texts), measure="ranking", drop=at_least_0(1 - found), ranking=found)


def _vectors(checkpoint: Checkpoint, session: "Session", texts: list[str]) -> "NDArray[Any]":
    task = Embed(checkpoint, session)
    return np.stack([added["embedding"] for _, added in task.stream(as_records(texts))])
