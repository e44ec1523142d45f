"""``zoo.distill``: the command as a function."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from zoo.training.logging.scores import Scores


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
    scores: "Scores | None"


def distill(
    teacher: str | PathLike[str] | Sequence[str | PathLike[str]],
    student: str | PathLike[str],
    *,
    recipe: str | PathLike[str] | None = None,
    data: str | PathLike[str] | Sequence[str | PathLike[str]] = (),
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
        data: files or directories of text; by default the corpus of the package.
        settings: further settings, nested, such as ``{"max_steps": 1000}`` or those of labelled
            data: ``{"task": "text-classification", "data": {"train": ["t.tsv"]}}``.
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
        >>> result = zoo.distill("runs/books/model", "tiny", data="books/")  # doctest: +SKIP
        >>> result.scores.retention  # doctest: +SKIP
        0.953
        >>> student = zoo.load(result.model)  # doctest: +SKIP
    """
    from zoo.distillation.runs import DistillRun
    from zoo.distillation.scoring.score import score_run
    from zoo.training.config.overrides import deep_merge
    from zoo.training.distributed.context import DistContext

    distillation: dict[str, Any] = {"teachers": _paths(teacher)}
    if recipe is not None:
        distillation["recipe"] = fspath(recipe)
    tree: dict[str, Any] = {"distillation": distillation, "student": {"name": fspath(student)}}
    if paths := _paths(data):
        tree["data"] = {"paths": paths}
    run, model = DistillRun(
        deep_merge(tree, settings or {}),
        DistContext.initialize(device),
        None if output is None else Path(output),
        offline=offline,
    ).start()
    scores = score_run(run, device=device, offline=offline) if score else None
    return Distilled(run, model, scores)


def _paths(values: str | PathLike[str] | Sequence[str | PathLike[str]]) -> list[str]:
    """Return one path or several as a list of text."""
    several = [values] if isinstance(values, str | PathLike) else values
    return [fspath(value) for value in several]
