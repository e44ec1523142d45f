"""The callback that writes the logs, curves and report of a run."""

import contextlib
import logging
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from zoo.hub.files import map_os_errors
from zoo.nn.kernels.packed_attention import masks_only
from zoo.overrides import override
from zoo.plugins.logger import Logger
from zoo.training.config.schema import TrainConfig
from zoo.training.logging.jsonl import JsonlLogger
from zoo.training.logging.progress import TrainingProgress
from zoo.training.logging.report import write_report
from zoo.training.logging.selection import note_missing_default
from zoo.training.logging.throughput import Throughput, training_flops
from zoo.training.state.checkpoints import DISK_FULL_HINT
from zoo.training.trainer import Callback, Trainer

LOG = logging.getLogger("zoo")
REPORT_INTERVAL = 60.0  # Seconds between reports. Each is rendered from the full log.


class LoggingCallback(Callback):
    """Writes logs, curves and the report of a run; only in the main process."""

    jsonl: JsonlLogger

    def __init__(
        self,
        run: Path,
        loggers: Sequence[type[Logger]],
        throughput: Throughput,
        metrics_position: int,
        data_log: Mapping[str, Any] | None = None,
    ) -> None:
        self._data_log = data_log
        self.run = run
        self.throughput = throughput
        self._position = metrics_position
        self._types = loggers
        self._exit = contextlib.ExitStack()
        self._report_time = 0.0
        self._loggers: list[Logger] = []
        self._stage = ""

    @override
    def on_train_begin(self, trainer: Trainer) -> None:
        self._first_step = trainer.step
        with map_os_errors(self.run, DISK_FULL_HINT):
            for logger_type in self._types:
                logger = logger_type(self.run, trainer.step)
                self._exit.callback(logger.close)
                self._loggers.append(logger)
                if isinstance(logger, JsonlLogger):
                    self.jsonl = logger
                    logger.truncate(self._position)
                    if self._data_log is not None and self._position == 0:
                        logger.log({"step": 0, "split": "data", **self._data_log})
        if trainer.config.report_to is None:
            note_missing_default()
        objective = trainer.loss_module.objective
        self._progress = TrainingProgress(
            trainer.config.max_steps,
            trainer.step,
            trainer.loss_weights,
            objective.metric_for_best_model,
        )
        self._exit.enter_context(self._progress.shown())

    @override
    def on_step_begin(self, trainer: Trainer) -> None:
        if trainer.step in (self._first_step, trainer.config.seq_len_warmup_steps):
            self.throughput.reset(flops_per_token(trainer))
        stage = describe_stage(trainer)
        if stage != self._stage:
            LOG.info("from step %s: %s", f"{trainer.step + 1:,}", stage)
            self._stage = stage
        self._tokens = trainer.tokens
        self.throughput.resume()

    @override
    def on_step_end(self, trainer: Trainer) -> None:
        self.throughput.step(trainer.tokens - self._tokens)
        config = trainer.config
        if trainer.step % config.logging_steps and trainer.step < config.max_steps:
            self._progress.step(
                trainer.step,
                lambda: trainer.train_metrics.compute(trainer.loss_weights),
                self.throughput.speed,
            )

    @override
    def on_log(self, trainer: Trainer, record: Mapping[str, Any]) -> None:
        performance: dict[str, Any] = {}
        if record["split"] == "train":
            performance = self.throughput.record(record["step"])
        with map_os_errors(self.run, DISK_FULL_HINT):
            for logger in self._loggers:
                logger.log(record)
                if performance:
                    logger.log_performance(performance)
        self._progress.log(record, performance)

    @override
    def on_save(self, trainer: Trainer) -> None:
        """Render the report, unless the last one is recent."""
        if time.monotonic() - self._report_time > REPORT_INTERVAL:
            self._write_report()

    @override
    def on_close(self, trainer: Trainer) -> None:
        try:
            if self._loggers:
                self._write_report()
        finally:
            self._exit.close()

    def _write_report(self) -> None:
        with map_os_errors(self.run, DISK_FULL_HINT):
            write_report(self.run)
        self._report_time = time.monotonic()


def describe_stage(trainer: Trainer) -> str:
    """Return what is special about a step, in a run whose stages differ; else an empty text."""
    config = trainer.config
    step = trainer.step
    parts = []
    if isinstance(config, TrainConfig) and config.seq_len_warmup is not None:
        length = config.seq_len
        if step < config.seq_len_warmup_steps:
            length = config.seq_len_warmup.seq_len
        parts.append(f"rows of {length:,} tokens")
    stage = trainer.loss_module.objective.stage(step, config.max_steps)
    if stage:
        parts.append(stage)
    return ", ".join(parts)


def flops_per_token(trainer: Trainer) -> float | None:
    """Return the FLOPs per token of this step's first row on CUDA; ``None`` on a CPU."""
    if trainer.dist.device.type != "cuda":
        return None
    batch = trainer.train_dataloader.sample_batch(trainer.step)
    tensors = {name: tensor.to(trainer.dist.device) for name, tensor in batch.tensors.items()}

    def loss() -> torch.Tensor:
        return torch.stack(list(trainer.loss_module(tensors).sums.values())).sum()

    # The formula for MFU counts the padding of rows, whichever kernel the run uses.
    with masks_only():
        return training_flops(loss, trainer.loss_module.parameters()) / batch.tokens
