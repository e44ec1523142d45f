"""The metric of a model's task on labelled data, as one number to compare models by."""

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from zoo.data.readers.problems import InvalidRows
from zoo.errors import UsageError
from zoo.plugins.tasks import compared_tasks, evaluation_task, find_task

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
    measured: bool = False  # What there is to say about the table has been said.

    def measure(self, session: "Session", limit: int | None = None) -> tuple[str, float]:
        """Return name and value of the metric."""
        evaluation = evaluation_task(self.evaluation)
        task = evaluation(self.checkpoint, session, limit=limit, **self.columns)
        task.silent = self.measured
        self.measured = True
        try:
            metrics = task.evaluate([self.file]).metrics
        except InvalidRows as error:  # the commands that compare models skip none
            raise InvalidRows(error.errors, error.count, skippable=False) from error
        names = find_task(self.evaluation, "evaluate").metrics
        name = next(name for name in names if name in metrics)
        return name, metrics[name]


def task_metric(
    checkpoint: "Checkpoint", file: Path, columns: Mapping[str, str]
) -> TaskMetric | None:
    """Return the metric of a model's head on a file; ``None`` for a file of plain texts."""
    if file.suffix.lower() not in TABLES:
        return None
    if not file.is_file():
        raise UsageError(f"cannot read {file}: it is not a file")
    supported = []
    for spec in compared_tasks():
        with contextlib.suppress(UsageError):
            evaluation_task(spec.name).require_supported(checkpoint)
            supported.append(spec.name)
    if not supported:
        raise UsageError(
            f"{file} is a table, and no metric on labelled data is for {checkpoint.head_name}",
            "give a file called *.txt with one text a line",
        )
    trained = (checkpoint.manifest.training or {}).get("task")  # one head may serve several tasks
    return TaskMetric(checkpoint, trained if trained in supported else supported[0], file, columns)
