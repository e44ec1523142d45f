"""What a target has to hold before a model is exported to it; imports no torch."""

from zoo.checkpoint import Checkpoint
from zoo.errors import UsageError
from zoo.exporting.targets.base import ExportTarget
from zoo.inference.task_checks import without_head

TYPES = "token_type_ids"


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
    target.check_model(checkpoint)
