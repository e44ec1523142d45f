"""The head of a pretrained model in fine-tuning: whether it is kept or replaced."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from zoo.errors import UsageError
from zoo.families.base import LABELLED
from zoo.training.config.finetune import FineTuneConfig

if TYPE_CHECKING:
    from collections.abc import Callable

    from zoo.checkpoint import Checkpoint
    from zoo.families.config import Config, Problem
    from zoo.training.state.pretrained import PretrainedInit

HEAD = "head"  # module that ``init_from.new_modules`` may name


def serves_other_task(checkpoint: "Checkpoint", head: str, problem: "Problem | None") -> bool:
    """Return whether the head of a checkpoint was trained on labelled data for another task.

    Heads of several tasks have tensors of the same names and even shapes on the Hub, such as
    ``classifier.weight`` for texts, words and choices.
    """
    if checkpoint.head_name != head:
        old_tasks = checkpoint.head.tasks
        new_tasks = checkpoint.family.heads()[head].tasks
        return bool(LABELLED.intersection(old_tasks) and LABELLED.intersection(new_tasks))
    config = checkpoint.config
    old_problem = config.problem
    # Without a problem type, several labels may be classes of one problem or the other.
    if old_problem is None and len(config.labels) == 1:
        old_problem = "regression"
    if old_problem is None or problem is None:
        return False
    return old_problem != problem


def describe_head(checkpoint: "Checkpoint") -> str:
    """Return the head of a checkpoint in words, with the labels that it has."""
    if not checkpoint.head.has_labels:
        return checkpoint.head_name
    description = f"with the labels {_list(checkpoint.config.labels)}"
    problem = checkpoint.config.problem
    if problem is not None:
        description = f"{problem.replace('_', ' ')} {description}"
    return f"{checkpoint.head_name} ({description})"


def unnamed_labels(count: int) -> tuple[str, ...]:
    """Return the labels of a head whose outputs have no names."""
    return tuple(f"LABEL_{number}" for number in range(count))


def kept_labels(init: "PretrainedInit", head: str, problem: "Problem | None") -> tuple[str, ...]:
    """Return the labels of a pretrained head that a run keeps; empty for a new head."""
    # The pretrained model of a resumed run has no checkpoint.
    if not init.checkpoints or HEAD in init.init_config.new_modules:
        return ()
    checkpoint = init.checkpoints["model"]
    if checkpoint.head_name != head or serves_other_task(checkpoint, head, problem):
        return ()
    return checkpoint.config.labels


def check_head(init: "PretrainedInit", head: str, config: "Config") -> None:
    """Check that a pretrained head that is kept has the labels of the data."""
    if not init.checkpoints or HEAD in init.init_config.new_modules:
        return
    checkpoint = init.checkpoints["model"]
    reference = init.init_config.model
    labels = config.labels
    has_new_head = checkpoint.head_name != head or serves_other_task(
        checkpoint, head, config.problem
    )
    if has_new_head:
        return
    head_labels = checkpoint.config.labels
    if head_labels not in (labels, unnamed_labels(len(labels))):
        data_labels = "a number" if config.problem == "regression" else _list(labels)
        raise UsageError(
            f"{reference} has a head for {_list(head_labels)}, and the data has {data_labels}",
            f"--set init_from.new_modules=[{HEAD}] starts with a new head",
        )


def with_option_of_head(
    settings: FineTuneConfig,
    init: "PretrainedInit | None",
    option: str,
    head: str,
    problem: "Problem | None",
    value: "Callable[[Checkpoint], bool]",
) -> FineTuneConfig:
    """Return the configuration with an option taken from the pretrained head.

    Args:
        settings: configuration of the run; an explicit option wins.
        init: the pretrained model, if there is one. A resumed run's has no checkpoint, and its
            configuration is already resolved.
        option: name of the option.
        head: head that is trained; one that is new gets ``False``.
        problem: problem type of the task.
        value: returns the option of a pretrained head.
    """
    pretrained = None if init is None else init.checkpoints.get("model")
    if settings.task_args.get(option) is not None or init is None or pretrained is None:
        return settings
    keeps_head = pretrained.head_name == head and HEAD not in init.init_config.new_modules
    keeps_head = keeps_head and not serves_other_task(pretrained, head, problem)
    options = {**settings.task_args, option: keeps_head and value(pretrained)}
    return msgspec.structs.replace(settings, task_args=options)


def _list(labels: Sequence[str]) -> str:
    text = ", ".join(labels[:4])
    if len(labels) > 4:
        text += f", ... ({len(labels)} in all)"
    return text
