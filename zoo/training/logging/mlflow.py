"""Curves in MLflow, by the package ``mlflow`` or ``mlflow-skinny``."""

import contextlib
import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import ClassVar

from zoo.errors import SourceError
from zoo.overrides import override
from zoo.plugins.logger import ScalarLogger


class MlflowLogger(ScalarLogger):
    """Writes scalars to the MLflow server or database of ``MLFLOW_TRACKING_URI``."""

    # Each process is a run of MLflow with the name of the run's directory, in the experiment
    # ``MLFLOW_EXPERIMENT_NAME``, by default ``zoo``.

    name: ClassVar[str] = "mlflow"
    requires: ClassVar[str] = "mlflow"
    install: ClassVar[str] = "pip install mlflow"

    def __init__(self, run: Path, step: int = 0) -> None:
        super().__init__(run, step)
        with _source_errors():
            import mlflow

            experiment = mlflow.set_experiment(os.environ.get("MLFLOW_EXPERIMENT_NAME", "zoo"))
            self._client = mlflow.MlflowClient()
            created = self._client.create_run(experiment.experiment_id, run_name=run.name)
            self._id = created.info.run_id

    @override
    def log_scalars(self, scalars: Mapping[str, float], step: int) -> None:
        from mlflow.entities import Metric

        now = int(time.time() * 1000)
        metrics = []
        for tag, value in scalars.items():
            # one slash: a file store cannot have ``train/loss`` and ``train/loss/a``
            split, _, name = tag.partition("/")
            metrics.append(Metric(f"{split}/{name.replace('/', '.')}", value, now, step))
        with _source_errors():
            self._client.log_batch(self._id, metrics=metrics)

    @override
    def close(self) -> None:
        """Mark the run as finished."""
        with _source_errors():
            self._client.set_terminated(self._id)


@contextlib.contextmanager
def _source_errors() -> Iterator[None]:
    from mlflow.exceptions import MlflowException

    try:
        yield
    except MlflowException as error:
        line = " ".join(str(error).split())
        raise SourceError(f"MLflow: {line}", "check $MLFLOW_TRACKING_URI") from error
