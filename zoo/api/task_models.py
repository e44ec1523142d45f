"""Models of the tasks of ``zoo run``."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from zoo.plugins.tasks import find_tasks, load_part

if TYPE_CHECKING:
    from zoo.checkpoint import Checkpoint
    from zoo.inference import Session
    from zoo.inference.task import Task

# Options that choose a model, and where it runs.
MODEL_OPTIONS = (
    "adapter",
    "global_tokens",
    "revision",
    "offline",
    "lock",
    "backend",
    "device",
    "dtype",
    "threads",
)
SOURCE_OPTIONS = ("adapter", "global_tokens", "revision", "offline", "lock")  # What is loaded.


def open_model(
    name: str, ref: str, model_options: Mapping[str, Any], task_options: Mapping[str, Any]
) -> "tuple[Checkpoint, Session]":
    """Open the model of a task, after checking that it suits the task and its options.

    Args:
        name: name, verb or synonym of the task.
        ref: reference to the model.
        model_options: values of ``MODEL_OPTIONS``.
        task_options: arguments of the task's class.
    """
    from zoo.conversion.cache import resolve_adapted
    from zoo.exporting.session import open_session

    task_class: type[Task] = load_part(find_tasks(name, "predict")[0], "predict")
    source_options = {key: model_options[key] for key in SOURCE_OPTIONS}
    compute = {key: model_options[key] for key in ("backend", "device", "dtype", "threads")}
    checkpoint = resolve_adapted(ref, source_options.pop("adapter"), **source_options)
    task_class.require_head(checkpoint)  # Loading the weights is slow: check this before.
    task_class.check_options(checkpoint, task_options)
    needs = task_class.needs(checkpoint, task_options)
    return checkpoint, open_session(checkpoint, **compute, fastest=True, needs=needs)
