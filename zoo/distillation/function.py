"""``zoo.distill``: the command as a function."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, Any

from zoo.io.paths import as_paths

if TYPE_CHECKING:
    from zoo.training.logging.scores import ScoresRecord

TEXT = {"train": "paths", "eval": "eval_paths"}  # Argument -> setting of ``data`` on text.

Paths = str | PathLike[str] | Sequence[str | PathLike[str]]


@dataclass(frozen=True)
class Distilled:
    """Result of ``distill``.

    Attributes:
        run: directory of the run.
        model: directory of the student, for ``zoo.load``.
        scores: scores of the student and its teachers; ``None`` if they were not measured.
    """

    run: Path
    model: Path
    scores: "ScoresRecord | None"


def distill(
    teacher: Paths,
    student: str | PathLike[str],
    *,
    recipe: str | PathLike[str] | None = None,
    train: Paths = (),
    eval: Paths = (),
    task: str | None = None,
    text: str | None = None,
    pair: str | None = None,
    label: str | None = None,
    settings: Mapping[str, Any] | None = None,
    output: str | PathLike[str] | None = None,
    device: str | None = None,
    score: bool = True,
    offline: bool = False,
) -> Distilled:
    """Distil a student from one or several teachers; ``zoo distill`` does the same.

    Args:
        teacher: reference to the teacher, or several.
        student: a family, whose student has half of the teacher's layers; a size of the teacher's
            family; or a reference to a model.
        recipe: name of a recipe, or a YAML file; by default the family's.
        train: files or directories of text, or tables with ``task``; by default the corpus of the
            package.
        eval: held-out data.
        task: task on labelled data, such as ``text-classification``.
        text: column of the text, of labelled data.
        pair: column of the second text.
        label: column of the label.
        settings: further settings, nested, such as ``{"max_steps": 1000}``.
        output: directory of the run, by default a new one in ``runs``.
        device: device, by default CUDA if available.
        score: compare the student with its teachers.
        offline: open no connection.

    Returns:
        the directories, and the scores.

    Raises:
        UsageError: a setting, recipe, student or teacher is unknown or wrong.
        SourceError: a model or file is missing.
        VerificationError: a file is damaged, or a loss is not finite.
        Interrupted: a signal came; ``zoo distill --resume`` continues.

    Example:
        >>> result = zoo.distill("runs/books/model", "tiny", train="books/")  # doctest: +SKIP
        >>> result.scores.retention  # doctest: +SKIP
        0.953
        >>> student = zoo.load(result.model)  # doctest: +SKIP
    """
    from zoo.distillation.runs import DistillRun
    from zoo.distillation.scoring.score import score_run
    from zoo.training.config.overrides import deep_merge
    from zoo.training.distributed.context import DistContext

    distillation: dict[str, Any] = {"teachers": as_paths(teacher)}
    if recipe is not None:
        distillation["recipe"] = fspath(recipe)
    tree: dict[str, Any] = {"distillation": distillation, "student": {"name": fspath(student)}}
    is_labelled = task is not None or "task" in (settings or {})
    data: dict[str, Any] = {}
    for name, paths in (("train", as_paths(train)), ("eval", as_paths(eval))):
        if paths:
            data[name if is_labelled else TEXT[name]] = paths
    for name, column in (("text", text), ("pair", pair), ("label", label)):
        if column is not None:
            data[name] = column
    tree["data"] = data
    if task is not None:
        tree["task"] = task
    run, model = DistillRun(
        deep_merge(tree, settings or {}),
        DistContext.initialize(device),
        None if output is None else Path(output),
        offline=offline,
    ).start()
    scores = score_run(run, device=device, offline=offline) if score else None
    return Distilled(run, model, scores)
