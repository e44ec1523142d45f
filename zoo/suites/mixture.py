"""All tasks of a suite as one text-to-text data set (Raffel et al. 2020, arXiv:1910.10683)."""

from collections.abc import Mapping, Sequence
from typing import Any

from zoo.data.readers.text_io import split_name
from zoo.errors import UsageError
from zoo.suites.base import SKIP_INVALID, TEXT_TO_TEXT, TrainingData

MIXTURE = "mixture"  # Directory of the run, next to the tables.


def mix_tasks(trainings: Mapping[str, TrainingData]) -> TrainingData:
    """Return the data of all tasks as named sources of one run.

    Sources of a task that are tables with its form get no further prefix. If the files of a task
    have broken rows, rows that cannot be used are left out of all tasks.

    Args:
        trainings: name of a task -> its data, of a text-to-text model.

    Raises:
        UsageError: a task has other columns or settings than a source and its target.
    """
    train: list[str] = []
    evaluation: list[str] = []
    prefixes = {}
    settings: dict[str, Any] = {}
    for name, training in trainings.items():
        other_settings = training.settings.keys() - {SKIP_INVALID}
        if training.task != TEXT_TO_TEXT or training.columns or other_settings:
            raise UsageError(f"{name} cannot be mixed with other tasks", "leave --mixture out")
        if not all(split_name(path)[0] for path in training.train):
            prefixes[name] = ""
        train += _name_sources(name, training.train)
        evaluation += _name_sources(name, training.eval)
        settings |= training.settings
    if prefixes:
        settings["data.prefix"] = prefixes
    return TrainingData(
        task=TEXT_TO_TEXT, train=tuple(train), eval=tuple(evaluation), settings=settings
    )


def _name_sources(name: str, paths: Sequence[str]) -> list[str]:
    """Return paths with the name of the task, unless they have one, such as ``glue/rte=DIR``."""
    return [path if split_name(path)[0] else f"{name}={path}" for path in paths]
