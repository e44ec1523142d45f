"""Writing of a model with more positions, and what that changes."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from zoo.checkpoint import (
    MANIFEST,
    Checkpoint,
    ModelFile,
    encode_manifest,
    load_checkpoint,
)
from zoo.checkpoint.records import GROWN_POSITIONS
from zoo.conversion.growth import Growth, Metrics
from zoo.conversion.safetensors_writer import write_weights
from zoo.io.digests.files import hash_folder
from zoo.io.output.atomic import atomic_directory
from zoo.io.progress import progress
from zoo.position_growth.plan import UNCHANGED, GrowthPlan
from zoo.position_growth.writing import (
    copied_tensor,
    grown_table,
    require_same_outputs,
    write_side_files,
)

if TYPE_CHECKING:
    pass

Measure = Callable[[Checkpoint], Metrics]


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
            require_same_outputs(checkpoint, grown)
        if measure is not None:
            growth = replace(growth, after=measure(grown))
            _write_manifest(staging, checkpoint, plan, growth)
    return growth


def _write_files(staging: Path, checkpoint: Checkpoint, plan: GrowthPlan) -> None:
    with checkpoint.open_weights() as reader:
        outputs = []
        for name in reader.tensors:
            special_rows = plan.tables.get(name)
            if special_rows is None:
                outputs.append(copied_tensor(reader, name, name))
                continue
            table = grown_table(
                reader,
                name,
                special_rows=special_rows,
                count=plan.max_seq_len,
                method=plan.method,
            )
            outputs.append(table)
        total = sum(output.info.nbytes for output in outputs)
        with progress("writing", total, bytes_=True) as advance:
            write_weights(staging, outputs, advance, metadata={"format": "zoo"})
    write_side_files(staging, checkpoint, _grown_model_file(checkpoint.model, plan))


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
        account={**old_manifest.account, GROWN_POSITIONS: growth.to_dict()},
        # They are of the old model.
        round_trip=None,
        evaluations=[],
    )
    (staging / MANIFEST).write_bytes(encode_manifest(manifest))
