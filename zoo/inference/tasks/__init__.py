"""What a model is for: texts in, JSON-able results out, over any Session.

Importing this package is cheap: a task's module comes with its use.
"""

import importlib
from typing import TYPE_CHECKING, Any

from zoo.errors import UsageError, did_you_mean

if TYPE_CHECKING:
    from zoo.checkpoint import Checkpoint
    from zoo.inference import Session
    from zoo.inference.tasks.base import Task

__all__ = ["TASKS", "make_task"]

# name -> the class, and one line for help
TASKS = {
    "embed": ("zoo.inference.tasks.embed:Embed", "A vector for each text."),
    "fill-mask": (
        "zoo.inference.tasks.fill_mask:FillMask",
        "What could stand at each masked place.",
    ),
    "features": (
        "zoo.inference.tasks.features:Features",
        "A vector for each token, from chosen layers.",
    ),
    "generate": ("zoo.inference.tasks.generate:Generate", "What follows a text."),
    "seq2seq": (
        "zoo.inference.tasks.seq2seq:Seq2Seq",
        "What a text is turned into: a translation, say.",
    ),
    "classify": (
        "zoo.inference.tasks.classify:Classify",
        "Labels for a text, a pair, or each token.",
    ),
}


def make_task(name: str, checkpoint: "Checkpoint", session: "Session", **options: Any) -> "Task":
    """Return a task, ready to run.

    Args:
        name: one of ``TASKS``.
        checkpoint: the model's description.
        session: the model.
        **options: ``max_tokens`` and ``max_batch_tokens``; ``top_k`` for fill-mask, ``layers``
            for features, and those of ``zoo.inference.generation.config.Settings`` for generate and
            seq2seq.

    Raises:
        UsageError: there is no such task, or the checkpoint's head does not serve it.
    """
    if name not in TASKS:
        raise UsageError(
            f"no task is called {name!r}",
            did_you_mean(name, list(TASKS)) or f"there are {', '.join(TASKS)}",
        )
    module, _, kind = TASKS[name][0].partition(":")
    task: Task = getattr(importlib.import_module(module), kind)(checkpoint, session, **options)
    return task
