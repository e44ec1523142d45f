"""Checks of tasks: the head, the maximum length, and finite outputs."""

import shlex
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from zoo.adapted_models.checkpoint import whole_model_hint
from zoo.errors import NonFiniteError, UsageError
from zoo.families.base import LABELLED
from zoo.inference.processing.records import TextExample

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from zoo.checkpoint import Checkpoint


def require_head(
    checkpoint: "Checkpoint",
    task: str,
    heads: Collection[str] = (),
    equivalents: Collection[str] = (),
) -> None:
    """Check that the head of a checkpoint supports a task."""
    serving = {task, *equivalents}
    if checkpoint.head_name in heads or serving.intersection(checkpoint.tasks):
        return
    family = checkpoint.family.heads()
    able = [n for n, head in family.items() if serving.intersection(head.tasks) or n in heads]
    served = ", ".join(checkpoint.tasks) or "no task"
    raise UsageError(
        f"{checkpoint.name} has the head {checkpoint.head_name}, which serves {served}, and not "
        f"{task}",
        _remedy(checkpoint, able, trainable=task in LABELLED)
        if able
        else f"no head of the family {checkpoint.family.name} serves it",
    )


def _remedy(checkpoint: "Checkpoint", heads: Sequence[str], *, trainable: bool) -> str:
    names = " or ".join(heads)
    if "none" in heads and checkpoint.is_export:
        return "export its model again with --head none, as in `zoo export MODEL --head none`"
    if "none" in heads:  # which every model has
        is_full_model = not checkpoint.is_adapter
        return without_head(checkpoint.name) if is_full_model else whole_model_hint(checkpoint)
    if trainable:
        return (
            f"train the head {names} by `zoo finetune`, or, if the source has it, convert that "
            f"with `zoo convert SRC --head {heads[0]} -o DIR`"
        )
    return (
        f"convert the source with --head {names}, as in `zoo convert SRC --head {heads[0]} -o DIR`"
    )


def without_head(reference: str) -> str:
    """Return the hint that a command converts a model without its head."""
    path = Path(reference)
    name = path.resolve().parent.name if path.name == "model" else path.name
    words = ["zoo", "convert", reference, "--head", "none", "-o", f"{name}-none"]
    return f"`{shlex.join(words)}` leaves the head out"


def require_finite(
    values: "NDArray[np.floating[Any]]", mask: "NDArray[np.bool_]", records: Sequence[TextExample]
) -> None:
    """Check that (texts, labels) or (texts, tokens, width) is finite, except for padding.

    ``mask`` is (texts, tokens), true for tokens and false for padding.
    """
    import numpy as np

    finite: NDArray[np.bool_] = np.isfinite(values)
    if np.count_nonzero(finite) == finite.size:
        return
    if values.ndim == 3:
        finite = finite | ~mask[:, :, None]
    for record, is_finite in zip(records, finite, strict=True):
        if not is_finite.all():
            raise NonFiniteError(f"{record.location}: the model returned NaN or infinity")


def token_limits(checkpoint: "Checkpoint", max_seq_length: int | None = None) -> list[int]:
    """Return the limits of model and files on the number of tokens of a text.

    Args:
        checkpoint: the checkpoint.
        max_seq_length: length that files of sentence-transformers state for the kind of text; by
            default, for any text.
    """
    spec = checkpoint.onnx_spec
    first = next(iter(spec.inputs.values()))
    axis = [axis for axis in first if isinstance(axis, str)][-1]
    limits = (spec.limits.get(axis), max_seq_length or checkpoint.model.max_tokens)
    return [limit for limit in limits if limit is not None]


def max_length(max_tokens: int | None, limits: Sequence[int]) -> int | None:
    """Return the length that texts are truncated to, by default the lowest limit."""
    limit = min(limits, default=None)
    if max_tokens is None:
        return limit
    if max_tokens < 1 or (limit is not None and max_tokens > limit):
        raise UsageError(
            f"texts cannot be cut at {max_tokens} tokens", f"the model takes 1 to {limit or 'any'}"
        )
    return max_tokens
