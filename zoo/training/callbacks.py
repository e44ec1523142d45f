"""Interface of the trainer's callbacks."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from zoo.training.trainer import Trainer


class Callback:
    """Base class of the trainer's callbacks; every method does nothing by default."""

    def on_train_begin(self, trainer: "Trainer") -> None:
        """Called once, before the first step of this process."""

    def on_step_begin(self, trainer: "Trainer") -> None:
        """Called before the batch of a step is loaded."""

    def on_step_end(self, trainer: "Trainer") -> None:
        """Called after the weights were updated, before logging, evaluation and saving."""

    def on_log(self, trainer: "Trainer", record: Mapping[str, Any]) -> None:
        """Called with a record of a logging step or an evaluation, see ``Logger.log``."""

    def on_save(self, trainer: "Trainer") -> None:
        """Called when a checkpoint is due."""

    def on_train_end(self, trainer: "Trainer") -> None:
        """Called once, after the last step of the run."""

    def on_close(self, trainer: "Trainer") -> None:
        """Called when the process stops training, also after an error."""
