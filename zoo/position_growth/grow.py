"""Writing of a model with more positions, and what that changes."""

import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from zoo.checkpoint import (
    CONFIG,
    MANIFEST,
    TOKENIZER,
    Checkpoint,
    ModelFile,
    encode_manifest,
    load_checkpoint,
)
from zoo.conversion.dtypes import numpy_dtype
from zoo.conversion.growth import Growth, Metrics
from zoo.conversion.safetensors_writer import write_weights
from zoo.errors import VerificationError
from zoo.families.random_inputs import random_inputs
from zoo.inference.load_model import load_model
from zoo.io.digests.files import hash_folder
from zoo.io.json import encode_json
from zoo.io.output.atomic import atomic_directory
from zoo.io.progress import progress
from zoo.io.tensors.formats import STORAGE, TensorInfo, TensorReader, TensorToWrite
from zoo.position_growth.plan import UNCHANGED, GrowthPlan
from zoo.sentence_models.module_weights import module_weight_files
from zoo.weights.position_tables import grow_positions

if TYPE_CHECKING:
    from numpy.typing import NDArray

Measure = Callable[[Checkpoint], Metrics]
# Largest difference between outputs of short rows, as a fraction of the largest magnitude.
TOLERANCE = 1e-5
ROW_LENGTHS = (12, 7)  # Tokens of the rows that both models read.


def grow(
    checkpoint: Checkpoint,
    path: Path,
    plan: GrowthPlan,
    *,
    measure: Measure | None = None,
    force: bool = False,
    sources: Sequence[Path] = (),
) -> Growth:
    """Write a model with more positions.

    If the method leaves short rows as they are, the result is verified before it is published:
    it computes for such rows what the old model does.

    Args:
        checkpoint: the model.
        path: the directory to write.
        plan: how it grows.
        measure: returns metrics of a model, of which one is ``perplexity``, for the manifest.
        force: whether to overwrite an earlier output.
        sources: directories that must not be overwritten.
    """
    checkpoint.require_unchanged()
    growth = Growth(
        plan.old_max_seq_len,
        plan.max_seq_len,
        plan.method,
        tuple(plan.tables),
        plan.new_parameters(checkpoint),
    )
    if measure is not None:
        growth = replace(growth, before=measure(checkpoint))
    with atomic_directory(path, force=force, sources=[checkpoint.path, *sources]) as staging:
        _write_files(staging, checkpoint, plan)
        _write_manifest(staging, checkpoint, plan, growth)
        grown = load_checkpoint(staging)
        if plan.method in UNCHANGED:
            _require_same_outputs(checkpoint, grown)
        if measure is not None:
            growth = replace(growth, after=measure(grown))
            _write_manifest(staging, checkpoint, plan, growth)
    return growth


def _write_files(staging: Path, checkpoint: Checkpoint, plan: GrowthPlan) -> None:
    with checkpoint.open_weights() as reader:
        outputs = [_output(reader, name, plan) for name in reader.tensors]
        total = sum(output.info.nbytes for output in outputs)
        with progress("writing", total, bytes_=True) as advance:
            write_weights(staging, outputs, advance, metadata={"format": "zoo"})
    (staging / CONFIG).write_bytes(encode_json(_grown_model_file(checkpoint.model, plan)))
    names = module_weight_files(checkpoint.model.pooling)
    if checkpoint.model.tokenizer is not None:
        names = [*names, TOKENIZER]
    for name in names:
        (staging / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(checkpoint.path / name, staging / name)


def _grown_model_file(model: ModelFile, plan: GrowthPlan) -> ModelFile:
    """Return the contents of ``config.json``, in which no stated length is below the new one."""
    changes: dict[str, Any] = {"config": msgspec.to_builtins(plan.config)}
    for name in ("tokenizer", "pooling", "pairs"):
        settings = getattr(model, name)
        if settings is not None and settings.max_tokens is not None:
            changes[name] = msgspec.structs.replace(settings, max_tokens=plan.max_seq_len)
    return msgspec.structs.replace(model, **changes)


def _write_manifest(
    staging: Path, checkpoint: Checkpoint, plan: GrowthPlan, growth: Growth
) -> None:
    (staging / MANIFEST).unlink(missing_ok=True)
    old_manifest = checkpoint.manifest
    manifest = msgspec.structs.replace(
        old_manifest,
        files=hash_folder(staging),
        ties=checkpoint.family.weights(plan.config, checkpoint.head_name).aliases(),
        account={**old_manifest.account, "grown_positions": growth.to_dict()},
        # They are of the old model.
        round_trip=None,
        evaluations=[],
    )
    (staging / MANIFEST).write_bytes(encode_manifest(manifest))


def _output(reader: TensorReader, name: str, plan: GrowthPlan) -> TensorToWrite:
    """Return a tensor to write: a table that has grown, or a copy."""
    info = reader.tensors[name]
    special_rows = plan.tables.get(name)
    if special_rows is None:
        return TensorToWrite(name, info, lambda: [reader.lazy(name)])
    shape = (special_rows + plan.max_seq_len, *info.shape[1:])

    def chunks() -> "Iterator[NDArray[Any]]":
        table = reader.read(name).view(numpy_dtype(info.dtype))
        grown = grow_positions(
            table, plan.max_seq_len, special_rows=special_rows, method=plan.method
        )
        yield np.ascontiguousarray(grown).view(STORAGE[info.dtype])

    return TensorToWrite(name, TensorInfo(info.dtype, shape), chunks)


def _require_same_outputs(old: Checkpoint, grown: Checkpoint) -> None:
    """Check that both models compute the same for short rows."""
    import torch

    spec = old.family.onnx(old.config, old.head_name)
    longest = min([*ROW_LENGTHS, *spec.limits.values()])
    inputs = random_inputs(spec, old.config, [min(length, longest) for length in ROW_LENGTHS])
    outputs = []
    for checkpoint in (old, grown):
        model: Any = load_model(checkpoint, torch.float32)
        with torch.inference_mode():
            outputs.append(model(**inputs))
    old_outputs, new_outputs = outputs
    for name, expected in old_outputs.items():
        scale = expected.abs().max().clamp(min=1e-9)
        difference = float((new_outputs[name] - expected).abs().max() / scale)
        if not difference <= TOLERANCE:
            raise VerificationError(
                f"{name} of the grown model differs by {difference:.1e} for short texts",
                "nothing was written",
            )
