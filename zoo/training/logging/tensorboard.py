"""TensorBoard curves, by ``torch.utils.tensorboard``.

A resumed run opens a new event file with a purge step: TensorBoard drops the points of later steps
in earlier files. Each record is flushed, so that a killed process loses no point of a step that a
checkpoint has.
"""

import importlib.util
import logging
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from zoo.plugins.logger import Logger

LOG = logging.getLogger("zoo")
PREFIX = "events.out.tfevents."


def warn_if_unavailable() -> bool:
    """Return whether TensorBoard is installed; if not, log a warning."""
    if importlib.util.find_spec("tensorboard") is not None:
        return True
    LOG.info("no TensorBoard curves are written: pip install 'plm-zoo[tensorboard]'")
    return False


class TensorBoardLogger(Logger):
    """Writes records as scalars to an event file in the run's directory.

    Raises:
        OSError: the file cannot be opened or, later, written.
    """

    def __init__(self, run: Path, step: int = 0) -> None:
        super().__init__(run, step)
        from torch.utils.tensorboard import SummaryWriter

        self._writer = SummaryWriter(str(run), purge_step=step + 1)

    def log(self, record: Mapping[str, Any]) -> None:
        """Write losses, metrics and rates under the name of their split."""
        self._write(record["step"], dict(_scalars(record)))

    def log_performance(self, record: Mapping[str, Any]) -> None:
        """Write the run's speed."""
        names = record.keys() - {"step", "seconds"}
        self._write(record["step"], {f"speed/{name}": record[name] for name in names})

    def _write(self, step: int, scalars: Mapping[str, float]) -> None:
        for tag, value in scalars.items():
            self._writer.add_scalar(tag, value, step)
        self._writer.flush()

    def close(self) -> None:
        """Close the file."""
        self._writer.close()


def _scalars(record: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    """Yield tag and value of each scalar of a record."""
    split = record["split"]
    for name in ("loss", "learning_rate", "gradient_norm"):
        if name in record:
            yield f"{split}/{name}", record[name]
    for group, prefix in (("losses", "loss/"), ("metrics", "")):
        for name, value in record.get(group, {}).items():
            yield f"{split}/{prefix}{name}", value
