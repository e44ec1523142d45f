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
    """Result of a task."""

    task: str
    metrics: dict[str, float]  # name -> value; the mean over the evaluation files
    score: float  # mean of the metrics, times 100


def glue_models(directory: Path) -> dict[str, Path]:
    """Return the model of each task, in a directory of models or runs named after the tasks."""
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
    """Evaluation of a model on a task, with its options."""

    kind: str  # name of the evaluation
    columns: dict[str, Any]
    prefix: str = ""  # text before the path of a file
    # metric of the task -> its name in results, where they differ
    metrics: Mapping[str, str] = field(default_factory=dict)


def evaluate_glue(
    models: dict[str, Path],
    data: Path,
    open_model: "Callable[[Path], tuple[Checkpoint, Session]]",
    *,
    limit: int | None = None,
    record: bool = False,
) -> list[TaskScore]:
    """Return the scores of models on the evaluation files of their tasks."""
    # With ``record``, each result also goes into the manifest of its model.
    files = {name: glue_files(GLUE[name], data)[1] for name in models}  # before any is evaluated
    scores = []
    for name, path in models.items():
        task = GLUE[name]
        checkpoint, session = open_model(path)
        form = (
            _Form(GENERATED, {}, f"{PREFIX}{name}=", {"accuracy": "exact_match"})
            if GENERATED in checkpoint.head.tasks
            else _Form(task.kind, {"text": task.text, "pair": task.pair, "label": task.label})
        )
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
