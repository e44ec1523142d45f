"""Tasks: one folder each with a declaration and the parts that run, train and evaluate it."""

from typing import TYPE_CHECKING, Any

from zoo.errors import UsageError
from zoo.plugins.tasks import evaluation_task, find_tasks, load_part

if TYPE_CHECKING:
    from collections.abc import Sequence

    from zoo.checkpoint import Checkpoint
    from zoo.evaluation.base import Evaluation
    from zoo.families.tasks import TaskSpec
    from zoo.inference import Session
    from zoo.inference.task import Task

__all__ = ["make_evaluation", "make_task"]


def make_task(name: str, checkpoint: "Checkpoint", session: "Session", **options: Any) -> "Task":
    """Return a task of ``zoo run`` by its name, verb or synonym; the head decides among several.

    Besides the options that the task declares, there are ``max_tokens`` and ``max_batch_tokens``.
    """
    specs = find_tasks(name, "predict")
    task_class: type[Task] = load_part(specs[0], "predict")
    task_class.require_head(checkpoint)
    spec = task_of_head(specs, checkpoint)
    own = {option.name for option in spec.run_options}
    for option in (option for other in specs for option in other.run_options):
        value = options.pop(option.name, option.default) if option.name not in own else None
        if value not in (None, option.default):
            raise UsageError(
                f"{checkpoint.name} is for {spec.name}, which has no option {option.flags}",
                f"leave {option.flags} out",
            )
    task: Task = load_part(spec, "predict")(checkpoint, session, **options)
    return task


def task_of_head(specs: "Sequence[TaskSpec]", checkpoint: "Checkpoint") -> "TaskSpec":
    """Return the task of a verb that suits a checkpoint's head, by the axes of its outputs."""
    outputs = {len(axes.split()) for axes in checkpoint.head.outputs.values()}
    for spec in specs:
        if not spec.output or len(spec.output.split()) in outputs:
            return spec
    names = " or ".join(spec.name for spec in specs)
    raise UsageError(
        f"{checkpoint.name} has the head {checkpoint.head_name}, whose outputs are not for {names}",
        f"its tasks are {', '.join(checkpoint.head.tasks)}",
    )


def make_evaluation(
    name: str, checkpoint: "Checkpoint", session: "Session", **options: Any
) -> "Evaluation":
    """Return an evaluation by its name, verb or synonym."""
    evaluation: Evaluation = evaluation_task(name)(checkpoint, session, **options)
    return evaluation
