"""What a run writes down while it goes on: log, speed, curves for TensorBoard, report, bar."""

import contextlib
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from zoo.hub.files import map_os_errors
from zoo.training.logging.jsonl import JsonlLogger
from zoo.training.logging.progress import training_progress
from zoo.training.logging.report import write_report
from zoo.training.logging.tensorboard import TensorBoardWriter
from zoo.training.logging.throughput import Throughput
from zoo.training.state.checkpoints import DISK_FULL_HINT

PATIENCE = 60.0  # seconds between reports: each is drawn from the whole log


class MetricsLogger:
    """The books of a run, kept by the first process; those of the others stay empty.

    Args:
        run: the run's directory.
        speed: the run's clock.
        steps: steps of the run.
        done: those made before.
        position: how long the log was then, in bytes.
        kept: whether this process keeps them.

    Raises:
        VerificationError: the log is not the one that the checkpoint goes with.
        UsageError: a file cannot be written.
    """

    def __init__(
        self, run: Path, speed: Throughput, *, steps: int, done: int, position: int, kept: bool
    ) -> None:
        self.run, self.speed, self._kept, self._drawn = run, speed, kept, 0.0
        self._closing = contextlib.ExitStack()
        if not kept:
            return
        with map_os_errors(run, DISK_FULL_HINT):
            self._journal = self._closing.enter_context(JsonlLogger(run))
            self._journal.truncate(position)
            self._events = self._closing.enter_context(TensorBoardWriter(run, done))
        self._show = self._closing.enter_context(training_progress(steps, done))

    def write(self, record: Mapping[str, Any]) -> None:
        """Write down a record of training or of validation; see ``JsonlLogger.write``.

        Raises:
            UsageError: the disk is full, or cannot be written.
        """
        if not self._kept:
            return
        with map_os_errors(self.run, DISK_FULL_HINT):
            self._journal.write(record)
            self._events.write(record)
            speed = {}
            if record["split"] == "train":
                speed = self.speed.record(record["step"])
                self._journal.write_performance(speed)
                self._events.write(speed)
        self._show(record, speed)

    def position(self) -> int:
        """Return how long the log is, in bytes, once all of it is on the disk."""
        return self._journal.size() if self._kept else 0

    def digest(self) -> str:
        """Return the BLAKE3 digest of the log."""
        return self._journal.digest() if self._kept else ""

    def report(self, *, now: bool = False) -> None:
        """Draw the report, if it is old by now or has to be new."""
        if self._kept and (now or time.monotonic() - self._drawn > PATIENCE):
            with map_os_errors(self.run, DISK_FULL_HINT):
                write_report(self.run)
            self._drawn = time.monotonic()

    def close(self) -> None:
        """Close all files."""
        self._closing.close()
