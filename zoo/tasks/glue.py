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

MODEL = "model"  # directory of the model of a run
GENERATED = "seq2seq"  # the evaluation of text-to-text models


@dataclass(frozen=True)
class TaskScore:
    """Result of a task."""

    task: str
    metrics: dict[str, float]  # Name -> value; the mean over the evaluation files.
    score: float  # Mean of the metrics, times 100.


def glue_models(directory: Path) -> dict[str, Path]:
    """Return the model of each task, in a directory of models or runs named after the tasks."""
    models = {}
    for name in GLUE:
        path = directory / name
        if (path / MODEL).is_dir():
            models[name] = path / MODEL
        elif path.is_dir():
            models[name] = path
    if not models:
        raise UsageError(
            f"{directory} has no model of a task of GLUE",
            f"give a directory with models or runs called {', '.join(GLUE)}",
        )
    return models


@dataclass(frozen=True)
class _Form:
    """Evaluation of a model on a task, with its options."""

    evaluation: str  # Name of the evaluation.
    columns: dict[str, Any]
    prefix: str = ""  # Text before the path of a file.
    # Metric of the task -> its name in results, where they differ.
    metrics: Mapping[str, str] = field(default_factory=dict)


def evaluate_glue(
    models: dict[str, Path],
    data: Path,
    open_model: "Callable[[Path], tuple[Checkpoint, Session]]",
    *,
    limit: int | None = None,
    record: bool = False,
) -> list[TaskScore]:
    """Return the scores of models on the evaluation files of their tasks.

    With ``record``, each result also goes into the manifest of its model.
    """
    # All files are found before the first model is evaluated.
    task_files = {}
    for name in models:
        _, task_files[name] = glue_files(GLUE[name], data)
    scores = []
    for name, path in models.items():
        task = GLUE[name]
        files = task_files[name]
        checkpoint, session = open_model(path)
        if GENERATED in checkpoint.head.tasks:
            form = _Form(GENERATED, {}, f"{PREFIX}{name}=", {"accuracy": "exact_match"})
        else:
            columns = {"text": task.text, "pair": task.pair, "label": task.label}
            form = _Form(task.task, columns)
        evaluation = make_evaluation(
            form.evaluation, checkpoint, session, limit=limit, **form.columns
        )
        results = [evaluation.evaluate([Path(f"{form.prefix}{file}")]) for file in files]
        metrics = {}
        for metric in task.metrics:
            result_name = form.metrics.get(metric, metric)
            metrics[metric] = mean(result.metrics[result_name] for result in results)
        if record and is_recordable(str(path), checkpoint):
            settings = {}
            for key, value in {"limit": limit, **form.columns}.items():
                if value is not None:
                    settings[key] = value
            for file, result in zip(files, results, strict=True):
                evaluated = evaluation_record(form.evaluation, [file], settings, session, result)
                record_evaluation(path, evaluated)
        scores.append(TaskScore(name, metrics, 100 * mean(metrics.values())))
    return scores
