"""The metric of a model's task on labelled data, as one number to compare models by."""

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from zoo.data.readers.problems import InvalidRows
from zoo.errors import UsageError
from zoo.plugins.metrics import select_metrics
from zoo.plugins.tasks import (
    compared_tasks,
    evaluation_task,
    find_task,
    selecting_tasks,
)

if TYPE_CHECKING:
    from zoo.checkpoint import Checkpoint
    from zoo.inference import Session

TABLES = (".tsv", ".csv", ".jsonl", ".ndjson", ".json", ".parquet")


@dataclass
class TaskMetric:
    """The metric of a task on a table."""

    checkpoint: "Checkpoint"  # The model, for its tokenizer and labels.
    evaluation: str
    file: Path  # The table.
    # Options of the evaluation that name columns.
    columns: Mapping[str, str] = field(default_factory=dict)
    # A metric in place of the task's, such as ``bleu`` or ``bleu:lowercase=true``.
    request: str | None = None
    measured: bool = False  # What there is to say about the table has been said.

    def measure(self, session: "Session", limit: int | None = None) -> tuple[str, float]:
        """Return name and value of the metric."""
        evaluation = evaluation_task(self.evaluation)
        options: dict[str, Any] = dict(self.columns)
        if self.request is not None:
            options["metric"] = [self.request]
        task = evaluation(self.checkpoint, session, limit=limit, **options)
        task.silent = self.measured
        self.measured = True
        try:
            metrics = task.evaluate([self.file]).metrics
        except InvalidRows as error:  # the commands that compare models skip none
            raise error.without_option() from error
        if self.request is not None:
            name = self.request.partition(":")[0]
            return name, metrics[name]
        names = find_task(self.evaluation, "evaluate").metrics
        name = next(name for name in names if name in metrics)
        return name, metrics[name]


def task_metric(
    checkpoint: "Checkpoint", file: Path, columns: Mapping[str, str], request: str | None = None
) -> TaskMetric | None:
    """Return the metric of a model's head on a file; ``None`` for a file of plain texts.

    Args:
        checkpoint: the model.
        file: a table with labels, or texts.
        columns: options of the evaluation that name columns.
        request: a metric in place of the task's, as for ``select_metrics``.

    Raises:
        UsageError: the model has no such metric.
    """
    if file.suffix.lower() not in TABLES:
        return None
    if not file.is_file():
        raise UsageError(f"cannot read {file}: it is not a file")
    specs = compared_tasks() if request is None else selecting_tasks()
    supported = []
    for spec in specs:
        with contextlib.suppress(UsageError):
            evaluation_task(spec.name).require_supported(checkpoint)
            supported.append(spec.name)
    if not supported:
        raise UsageError(
            f"{file} is a table, and no metric on labelled data is for {checkpoint.head_name}",
            "give a file called *.txt with one text a line",
        )
    trained = (checkpoint.manifest.training or {}).get("task")  # one head may serve several tasks
    name = trained if trained in supported else supported[0]
    if request is not None:
        select_metrics([request], evaluation_task(name).metric_input(), name)
    return TaskMetric(checkpoint, name, file, columns, request)
