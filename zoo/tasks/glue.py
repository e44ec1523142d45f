"""Evaluation of fine-tuned models on the tasks of GLUE, a model for each task."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean
from typing import TYPE_CHECKING, Any

from zoo.data.readers.glue import GLUE, PREFIX, glue_files
from zoo.errors import UsageError
from zoo.evaluation.record import evaluation_record, is_recordable, record_evaluation
from zoo.tasks import make_evaluation

if TYPE_CHECKING:
    from zoo.checkpoint import Checkpoint
    from zoo.inference import Session

MODEL = "model"  # of a run
GENERATED = "seq2seq"  # the evaluation of text-to-text models


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


@dataclass(frozen=True)
class _Form:
    """Evaluation of a model on a task, with its options.

    Attributes:
        kind: name of the evaluation.
        columns: options of it.
        prefix: text before the path of a file.
        metrics: metric of the task -> its name in results, where it is another.
    """

    kind: str
    columns: dict[str, Any]
    prefix: str = ""
    metrics: Mapping[str, str] = field(default_factory=dict)


def _form(name: str, checkpoint: "Checkpoint") -> _Form:
    """Return the evaluation of a model; the task's form as text if it generates targets."""
    task = GLUE[name]
    if GENERATED in checkpoint.head.tasks:
        return _Form(GENERATED, {}, f"{PREFIX}{name}=", {"accuracy": "exact_match"})
    return _Form(task.kind, {"text": task.text, "pair": task.pair, "label": task.label})


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
        checkpoint, session = open_model(path)
        form = _form(name, checkpoint)
        evaluation = make_evaluation(form.kind, checkpoint, session, limit=limit, **form.columns)
        results = [evaluation.evaluate([Path(f"{form.prefix}{file}")]) for file in files[name]]
        metrics = {
            metric: mean(result.metrics[form.metrics.get(metric, metric)] for result in results)
            for metric in task.metrics
        }
        recorded = record and is_recordable(str(path), checkpoint)
        for file, result in zip(files[name], results, strict=True) if recorded else ():
            settings = {"limit": limit, **form.columns}
            used = {key: value for key, value in settings.items() if value is not None}
            record_evaluation(path, evaluation_record(form.kind, [file], used, session, result))
        scores.append(TaskScore(name, metrics, 100 * mean(metrics.values())))
    return scores
