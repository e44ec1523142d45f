"""Tasks, which map texts to JSON-serializable results with any ``Session``.

The module of a task is imported on first use.
"""

from typing import TYPE_CHECKING, Any

from zoo.plugins.named import import_class, usable

if TYPE_CHECKING:
    from zoo.checkpoint import Checkpoint
    from zoo.inference import Session
    from zoo.inference.tasks.base import Task

__all__ = ["TASKS", "all_tasks", "make_task", "task_type"]

# name -> (class, one-line help)
TASKS = {
    "embed": ("zoo.inference.tasks.embed:Embed", "Compute sentence embeddings."),
    "fill-mask": (
        "zoo.inference.tasks.fill_mask:FillMask",
        "Predict masked tokens.",
    ),
    "features": (
        "zoo.inference.tasks.features:Features",
        "Compute hidden states of the tokens, from any layers.",
    ),
    "generate": ("zoo.inference.tasks.generate:Generate", "Generate a continuation of a text."),
    "seq2seq": (
        "zoo.inference.tasks.seq2seq:Seq2Seq",
        "Generate an output sequence, such as a translation.",
    ),
    "classify": (
        "zoo.inference.tasks.classify:Classify",
        "Classify texts, pairs of texts, or tokens.",
    ),
    "answer": (
        "zoo.inference.tasks.answer:Answer",
        "Answer questions by spans of their contexts.",
    ),
    "choose": (
        "zoo.inference.tasks.choose:Choose",
        "Choose one of several texts for a context.",
    ),
    "score": (
        "zoo.inference.tasks.score:Score",
        "Compute log-likelihoods of texts, or of continuations of a context.",
    ),
    "similarity": (
        "zoo.inference.tasks.similarity:Similarity",
        "Compute the cosine similarity of pairs of texts.",
    ),
}


def all_tasks() -> dict[str, str]:
    """Return the help of each task by name, of those of plugins, too; imports none."""
    plugins = {task: f"See {named.origin}." for task, named in usable("tasks", TASKS).items()}
    return {task: text for task, (_, text) in TASKS.items()} | plugins


def task_type(name: str) -> "type[Task]":
    """Return the class of a task.

    Raises:
        UsageError: no task has that name.
        PluginError: the plugin of the task is broken, or two plugins have it.
    """
    from zoo.inference.tasks.base import Task

    built_in = {task: target for task, (target, _) in TASKS.items()}
    kind: type[Task] = import_class("tasks", name, built_in, Task)
    return kind


def make_task(name: str, checkpoint: "Checkpoint", session: "Session", **options: Any) -> "Task":
    """Return a task.

    Args:
        name: one of ``all_tasks``.
        checkpoint: the checkpoint.
        session: the model.
        **options: ``max_tokens`` and ``max_batch_tokens``, and those of the task's class.

    Raises:
        UsageError: no task has that name, or the head of the checkpoint does not support it.
    """
    return task_type(name)(checkpoint, session, **options)
