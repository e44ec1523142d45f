"""A model for longer texts that begins with the weights of another one."""

import shutil
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from zoo.adapted_models.checkpoint import whole_model_hint
from zoo.checkpoint import (
    CONFIG,
    FORMAT_VERSION,
    MANIFEST,
    TOKENIZER,
    Checkpoint,
    Manifest,
    encode_manifest,
    load_checkpoint,
)
from zoo.conversion.dtypes import numpy_dtype
from zoo.conversion.safetensors_writer import write_weights
from zoo.errors import UsageError, VerificationError
from zoo.families.base import Family
from zoo.families.longer import LongerModel
from zoo.families.random_inputs import random_inputs
from zoo.io.digests.files import hash_folder
from zoo.io.json import encode_json
from zoo.io.output.atomic import atomic_directory
from zoo.io.tensors.formats import STORAGE, TensorInfo, TensorReader, TensorToWrite
from zoo.sentence_models.module_weights import module_weight_files
from zoo.version import __version__
from zoo.weights.position_tables import grow_positions

if TYPE_CHECKING:
    from numpy.typing import NDArray

# Largest difference between outputs for short texts, as a fraction of the largest magnitude.
TOLERANCE = 1e-5
ROW_LENGTHS = (12, 7)  # Tokens of the rows that both models read.


@dataclass(frozen=True)
class Lengthened:
    """Result of ``lengthen``: what became of each tensor."""

    path: Path | None  # The directory of the new model; ``None`` in a dry run.
    family: str
    head: str
    max_seq_len: int
    max_seq_len_before: int
    copied: tuple[str, ...]  # Tensors that both models have.
    grown: tuple[str, ...]  # Tables of positions.
    initial: dict[str, str]  # New tensor -> the tensor whose values it begins with.

    def lines(self) -> Iterator[str]:
        """Return the lines that ``zoo convert`` prints."""
        yield f"{self.family} with head {self.head}"
        yield f"{len(self.copied)} tensors copied"
        for name in self.grown:
            yield (
                f"{name}: the positions of {self.max_seq_len_before:,} tokens, repeated for "
                f"{self.max_seq_len:,}"
            )
        yield f"{len(self.initial)} new tensors begin with the values of others"
        yield "every tensor is accounted for"

    def to_dict(self) -> dict[str, Any]:
        """Return the same, for ``--json`` and the manifest."""
        return {
            "path": None if self.path is None else str(self.path),
            "family": self.family,
            "head": self.head,
            "max_seq_len": self.max_seq_len,
            "max_seq_len_before": self.max_seq_len_before,
            "copied": list(self.copied),
            "grown": list(self.grown),
            "initial": self.initial,
        }


def lengthen(
    checkpoint: Checkpoint,
    path: Path | None,
    *,
    family: Family,
    max_seq_len: int,
    reference: str,
    force: bool = False,
    sources: tuple[Path, ...] = (),
) -> Lengthened:
    """Write a model of a family that reads longer texts.

    The result is verified before it is published: for short texts, it computes what the old model
    does.

    Args:
        checkpoint: the model for shorter texts.
        path: the directory to write; ``None`` to write nothing.
        family: the family of the new model, see ``Family.longer_model``.
        max_seq_len: number of tokens of its longest text.
        reference: the reference that the manifest names as the source.
        force: whether to overwrite an earlier output.
        sources: directories that the output must not overwrite.

    Raises:
        UsageError: the family does not take over the model.
        VerificationError: a tensor is not accounted for, or the outputs differ.
    """
    if checkpoint.is_export:
        raise UsageError(f"{checkpoint.name} is an export", "give the model it was made from")
    if checkpoint.is_adapter:
        raise UsageError(f"{checkpoint.name} is an adapter", whole_model_hint(checkpoint))
    try:
        longer = family.longer_model(checkpoint.family.name, checkpoint.config, max_seq_len)
    except ValueError as error:
        raise UsageError(f"--max-seq-len {max_seq_len:,}: {error}") from error
    report = _account(checkpoint, family, longer, max_seq_len)
    if path is None:
        return report
    checkpoint.require_unchanged()
    with atomic_directory(path, force=force, sources=[checkpoint.path, *sources]) as staging:
        _write(staging, checkpoint, family, longer, report, reference)
        require_same_outputs(checkpoint, load_checkpoint(staging), longer.window)
    return replace(report, path=path)


def _account(
    checkpoint: Checkpoint, family: Family, longer: LongerModel, max_seq_len: int
) -> Lengthened:
    """Return where each tensor of the new model is from; every old tensor has to be used."""
    head = checkpoint.head_name
    if head not in family.heads():
        raise UsageError(f"{family.name} has no head {head}")
    old_shapes = {entry.target: entry.shape for entry in checkpoint.weights.entries()}
    copied = []
    grown = []
    unaccounted = []
    for entry in family.weights(longer.config, head).entries():
        name = entry.target
        if name in longer.tables and name in old_shapes:
            grown.append(name)
        elif name in longer.initial:
            if old_shapes.get(longer.initial[name]) != entry.shape:
                unaccounted.append(name)
        elif old_shapes.get(name) == entry.shape:
            copied.append(name)
        else:
            unaccounted.append(name)
    unaccounted += sorted(old_shapes.keys() - {*copied, *grown})
    if unaccounted:
        raise VerificationError(
            f"{', '.join(unaccounted)} cannot be taken over from {checkpoint.family.name} to "
            f"{family.name}",
            "nothing was written",
        )
    before = checkpoint.onnx_spec.limits.get("tokens") or 0
    return Lengthened(
        path=None,
        family=family.name,
        head=head,
        max_seq_len=max_seq_len,
        max_seq_len_before=before,
        copied=tuple(copied),
        grown=tuple(grown),
        initial=dict(longer.initial),
    )


def _write(
    staging: Path,
    checkpoint: Checkpoint,
    family: Family,
    longer: LongerModel,
    report: Lengthened,
    reference: str,
) -> None:
    old_model = checkpoint.model
    tokenizer = old_model.tokenizer
    if tokenizer is not None:
        tokenizer = msgspec.structs.replace(tokenizer, max_tokens=report.max_seq_len)
    pooling = old_model.pooling
    if pooling is not None:
        pooling = msgspec.structs.replace(pooling, max_tokens=None)
    model = msgspec.structs.replace(
        old_model,
        family=family.name,
        config=msgspec.to_builtins(longer.config),
        tokenizer=tokenizer,
        pooling=pooling,
    )
    with checkpoint.open_weights() as reader:
        outputs = [_copy(reader, name, name) for name in report.copied]
        for name, source in report.initial.items():
            outputs.append(_copy(reader, name, source))
        for name in report.grown:
            outputs.append(_grown(reader, name, longer.tables[name], report.max_seq_len))
        write_weights(staging, outputs, lambda _: None, metadata={"format": "zoo"})
    (staging / CONFIG).write_bytes(encode_json(model))
    if tokenizer is not None:
        shutil.copyfile(checkpoint.path / TOKENIZER, staging / TOKENIZER)
    for name in module_weight_files(old_model.pooling):
        (staging / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(checkpoint.path / name, staging / name)
    account = {**report.to_dict(), "from": reference}
    del account["path"]
    dtypes = dict(checkpoint.manifest.dtypes)
    manifest = Manifest(
        zoo=FORMAT_VERSION,
        created_by={"plm-zoo": __version__},
        files=hash_folder(staging),
        licence=checkpoint.manifest.licence or checkpoint.manifest.base_licence,
        languages=checkpoint.manifest.languages,
        dtypes=dtypes,
        ties=family.weights(longer.config, report.head).aliases(),
        account={"lengthened": account},
    )
    (staging / MANIFEST).write_bytes(encode_manifest(manifest))


def _copy(reader: TensorReader, name: str, source: str) -> TensorToWrite:
    return TensorToWrite(name, reader.tensors[source], lambda: [reader.lazy(source)])


def _grown(reader: TensorReader, name: str, special_rows: int, count: int) -> TensorToWrite:
    info = reader.tensors[name]
    shape = (special_rows + count, *info.shape[1:])

    def chunks() -> "Iterator[NDArray[Any]]":
        table = reader.read(name).view(numpy_dtype(info.dtype))
        grown = grow_positions(table, count, special_rows=special_rows)
        yield np.ascontiguousarray(grown).view(STORAGE[info.dtype])

    return TensorToWrite(name, TensorInfo(info.dtype, shape), chunks)


def require_same_outputs(old: Checkpoint, new: Checkpoint, window: int) -> None:
    """Check that both models compute the same for texts that a window holds."""
    import torch

    from zoo.inference.load_model import load_model

    spec = old.family.onnx(old.config, old.head_name)
    lengths = [min(length, window) for length in ROW_LENGTHS]
    inputs = random_inputs(spec, old.config, lengths)
    outputs = []
    for checkpoint in (old, new):
        model: Any = load_model(checkpoint, torch.float32)
        with torch.inference_mode():
            outputs.append(model(**inputs))
    mask = inputs["attention_mask"]
    old_outputs, new_outputs = outputs
    for name, expected in old_outputs.items():
        values = new_outputs[name]
        if expected.shape[: mask.dim()] == mask.shape:
            expected = expected[mask > 0]
            values = values[mask > 0]
        difference = float((values - expected).abs().max() / expected.abs().max().clamp(min=1e-9))
        if not difference <= TOLERANCE:
            raise VerificationError(
                f"{name} of the new model differs by {difference:.1e} for texts of "
                f"{max(lengths)} tokens",
                "nothing was written",
            )
