"""What a model is for: texts in, JSON-able results out, over any Session.

Importing this package is cheap: a task's module comes with its use.
"""

import importlib
from typing import TYPE_CHECKING, Any

from zoo.errors import UsageError, nearest

if TYPE_CHECKING:
    from zoo.backends import Session
    from zoo.checkpoint import Checkpoint
    from zoo.tasks.base import Task

__all__ = ["TASKS", "make_task"]

# name -> the class, and one line for help
TASKS = {
    "embed": ("zoo.tasks.embed:Embed", "A vector for each text."),
    "fill-mask": ("zoo.tasks.fill_mask:FillMask", "What could stand at each masked place."),
    "features": ("zoo.tasks.features:Features", "A vector for each token, from chosen layers."),
    "generate": ("zoo.tasks.generate:Generate", "What follows a text."),
    "seq2seq": ("zoo.tasks.seq2seq:Seq2Seq", "What a text is turned into: a translation, say."),
    "classify": ("zoo.tasks.classify:Classify", "Labels for a text, a pair, or each token."),
}


def make_task(name: str, checkpoint: "Checkpoint", session: "Session", **options: Any) -> "Task":
    """Return a task, ready to run.

    Args:
        name: one of ``TASKS``.
        checkpoint: the model's description.
        session: the model.
        **options: ``max_tokens`` and ``token_budget``; ``top_k`` for fill-mask, ``layers``
            for features, and those of ``zoo.generation.settings.Settings`` for generate and
            seq2seq.

    Raises:
        UsageError: there is no such task, or the checkpoint's head does not serve it.
    """
    if name not in TASKS:
        raise UsageError(
            f"no task is called {name!r}",
            nearest(name, list(TASKS)) or f"there are {', '.join(TASKS)}",
        )
    module, _, kind = TASKS[name][0].partition(":")
    task: Task = getattr(importlib.import_module(module), kind)(checkpoint, session, **options)
    return task
