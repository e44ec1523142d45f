"""TensorBoard curves, by ``torch.utils.tensorboard``."""

from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

from zoo.overrides import override
from zoo.plugins.logger import ScalarLogger

PREFIX = "events.out.tfevents."


class TensorBoardLogger(ScalarLogger):
    """Writes scalars to an event file in the run's directory."""

    # A resumed run opens a new file with a purge step: TensorBoard drops the points of later steps
    # in earlier files. Each record is flushed, so that a killed process loses no point of a step
    # that a checkpoint has.

    name: ClassVar[str] = "tensorboard"
    requires: ClassVar[str] = "tensorboard"
    install: ClassVar[str] = "pip install tensorboard"

    def __init__(self, run: Path, step: int = 0) -> None:
        super().__init__(run, step)
        from torch.utils.tensorboard import SummaryWriter

        self._writer = SummaryWriter(str(run), purge_step=step + 1)

    @override
    def log_scalars(self, scalars: Mapping[str, float], step: int) -> None:
        for tag, value in scalars.items():
            self._writer.add_scalar(tag, value, step)
        self._writer.flush()

    @override
    def close(self) -> None:
        self._writer.close()
