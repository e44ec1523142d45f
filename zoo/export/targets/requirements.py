"""What a target has to hold before a model is exported to it; imports no torch."""

from zoo.checkpoint import Checkpoint
from zoo.convert.dtypes import NAMES
from zoo.errors import UsageError, did_you_mean
from zoo.export.targets.base import ExportTarget
from zoo.inference.task_checks import without_head
from zoo.io.tensors.formats import DTYPE_NAMES

TYPES = "token_type_ids"


def check_precision(target: ExportTarget, name: str | None) -> str:
    """Return the name of a precision of a target, by default its first."""
    known = list(target.precisions)
    name = DTYPE_NAMES[NAMES[name]] if name in NAMES else name  # fp16 is float16
    if name is not None and name not in known:
        raise UsageError(
            f"{target.title} has no precision {name!r}",
            did_you_mean(name, known) or f"give {', '.join(known)}",
        )
    return name or known[0]


def require_held(target: ExportTarget, checkpoint: Checkpoint) -> None:
    """Check that a target can hold a model."""
    reason = target.refusal(
        checkpoint.family, checkpoint.config, checkpoint.head_name, checkpoint.model.pooling
    )
    tokenizer = checkpoint.model.tokenizer
    typed = tokenizer is not None and tokenizer.token_types and TYPES in checkpoint.onnx_spec.inputs
    if checkpoint.model.score_activation is not None and typed and not target.reads_token_types:
        reason = "it reads no token types, which tell a query from a text"
    if reason is not None:
        bare = target.refusal(
            checkpoint.family, checkpoint.config, "none", checkpoint.model.pooling
        )
        raise UsageError(
            f"{target.title} cannot hold {checkpoint.name}, of the family "
            f"{checkpoint.family.name} with the head {checkpoint.head_name}: {reason}",
            without_head(checkpoint.name)
            if bare is None
            else "docs/runtime-table.md lists what each target holds",
        )
