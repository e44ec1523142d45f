"""What a task refuses: a head that cannot serve it, a length the model cannot take, NaN."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from zoo.errors import NonFiniteError, UsageError
from zoo.inference.tasks.records import TextExample

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from zoo.checkpoint import Checkpoint


def require_head(checkpoint: "Checkpoint", task: str) -> None:
    """Check that a checkpoint's head serves a task.

    Raises:
        UsageError: it does not; says which tasks it serves, and which heads would.
    """
    if task in checkpoint.head.tasks:
        return
    able = [name for name, head in checkpoint.family.heads().items() if task in head.tasks]
    served = ", ".join(checkpoint.head.tasks) or "no task"
    raise UsageError(
        f"{checkpoint.path} has the head {checkpoint.head_name}, which serves {served}, and not "
        f"{task}",
        f"convert the source with --head {' or '.join(able)}, as in `zoo convert SRC --head "
        f"{able[0]}`"
        if able
        else f"no head of the family {checkpoint.family.name} serves it",
    )


def require_finite(
    values: "NDArray[np.floating[Any]]", mask: "NDArray[np.bool_]", records: Sequence[TextExample]
) -> None:
    """Check that a model returned numbers.

    Args:
        values: (texts, labels), or (texts, tokens, width), where padding may hold anything.
        mask: (texts, tokens), true where there is a token.
        records: the texts.

    Raises:
        NonFiniteError: NaN or infinity; names the first such text.
    """
    import numpy as np

    finite: NDArray[np.bool_] = np.isfinite(values)
    if finite.all():
        return
    if values.ndim == 3:
        finite = finite | ~mask[:, :, None]
    for record, sound in zip(records, finite, strict=True):
        if not sound.all():
            raise NonFiniteError(f"{record.location}: the model returned NaN or infinity")


def max_length(wanted: int | None, limits: Sequence[int]) -> int | None:
    """Return how many tokens of a text are kept: what is wanted, by default all the model takes.

    Raises:
        UsageError: the model cannot take so many.
    """
    limit = min(limits, default=None)
    if wanted is None:
        return limit
    if wanted < 1 or (limit is not None and wanted > limit):
        raise UsageError(
            f"texts cannot be cut at {wanted} tokens", f"the model takes 1 to {limit or 'any'}"
        )
    return wanted
