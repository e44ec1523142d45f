"""Evaluation of fine-tuned models on the tasks of GLUE, a model for each task."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import TYPE_CHECKING

from zoo.data.readers.glue import GLUE, glue_files
from zoo.errors import UsageError
from zoo.evaluate import make_evaluation
from zoo.evaluate.record import evaluation_record, is_recordable, record_evaluation

if TYPE_CHECKING:
    from zoo.checkpoint import Checkpoint
    from zoo.inference import Session

MODEL = "model"  # of a run


@dataclass(frozen=True)
class TaskScore:
    """Result of a task.

    Attributes:
        task: name of the task.
        metrics: name -> value; the mean over the evaluation files.
        score: mean of the metrics, times 100.
    """

    task: str
    metrics: dict[str, float]
    score: float


def glue_models(directory: Path) -> dict[str, Path]:
    """Return task -> its model, in a directory of models or runs with the names of the tasks.

    Raises:
        UsageError: there is none.
    """
    models = {name: directory / name for name in GLUE if (directory / name).is_dir()}
    if not models:
        raise UsageError(
            f"{directory} has no model of a task of GLUE",
            f"give a directory with models or runs called {', '.join(GLUE)}",
        )
    return {
        name: path / MODEL if (path / MODEL).is_dir() else path for name, path in models.items()
    }


def evaluate_glue(
    models: dict[str, Path],
    data: Path,
    open_model: "Callable[[Path], tuple[Checkpoint, Session]]",
    *,
    limit: int | None = None,
    record: bool = False,
) -> list[TaskScore]:
    """Return the scores of models on the evaluation files of their tasks.

    Args:
        models: task -> model.
        data: directory of GLUE's files.
        open_model: function from a path to the checkpoint and a session.
        limit: number of samples of each file to use; ``None`` for all.
        record: write each result into the manifest of the model.

    Raises:
        UsageError: a model does not suit its task.
        SourceError, VerificationError: a file is not there, or damaged.
    """
    files = {name: glue_files(GLUE[name], data)[1] for name in models}  # before any is evaluated
    scores = []
    for name, path in models.items():
        task = GLUE[name]
        columns = {"text": task.text, "pair": task.pair, "label": task.label}
        checkpoint, session = open_model(path)
        evaluation = make_evaluation(task.kind, checkpoint, session, limit=limit, **columns)
        results = [evaluation.evaluate([file]) for file in files[name]]
        metrics = {m: mean(result.metrics[m] for result in results) for m in task.metrics}
        recorded = record and is_recordable(str(path), checkpoint)
        for file, result in zip(files[name], results, strict=True) if recorded else ():
            settings = {"limit": limit, **columns}
            used = {key: value for key, value in settings.items() if value is not None}
            record_evaluation(path, evaluation_record(task.kind, [file], used, session, result))
        scores.append(TaskScore(name, metrics, 100 * mean(metrics.values())))
    return scores
