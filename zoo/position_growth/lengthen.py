"""A model for longer texts that begins with the weights of another one."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from zoo.adapted_models.checkpoint import whole_model_hint
from zoo.checkpoint import (
    FORMAT_VERSION,
    MANIFEST,
    Checkpoint,
    Manifest,
    encode_manifest,
    load_checkpoint,
)
from zoo.checkpoint.records import LENGTHENED, growth_records
from zoo.conversion.safetensors_writer import write_weights
from zoo.errors import UsageError, VerificationError
from zoo.families.base import Family
from zoo.families.longer import LongerModel
from zoo.io.digests.files import hash_folder
from zoo.io.output.atomic import atomic_directory
from zoo.position_growth.writing import (
    ROW_LENGTHS,
    copied_tensor,
    grown_table,
    require_same_outputs,
    write_side_files,
)
from zoo.version import __version__

if TYPE_CHECKING:
    pass


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
        lengths = [min(length, longer.window) for length in ROW_LENGTHS]
        require_same_outputs(checkpoint, load_checkpoint(staging), lengths)
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
        outputs = [copied_tensor(reader, name, name) for name in report.copied]
        for name, source in report.initial.items():
            outputs.append(copied_tensor(reader, name, source))
        for name in report.grown:
            table = grown_table(
                reader, name, special_rows=longer.tables[name], count=report.max_seq_len
            )
            outputs.append(table)
        write_weights(staging, outputs, lambda _: None, metadata={"format": "zoo"})
    write_side_files(staging, checkpoint, model)
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
        account={**growth_records(checkpoint.manifest.account), LENGTHENED: account},
    )
    (staging / MANIFEST).write_bytes(encode_manifest(manifest))
