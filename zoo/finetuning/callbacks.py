"""Callbacks of fine-tuning: early stopping, and the best checkpoint as the final model."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from zoo.overrides import override
from zoo.training.callbacks import Callback
from zoo.training.state.checkpoints import (
    known_digests,
    list_checkpoints,
    load_tensors,
    read_meta,
)
from zoo.training.state.recovery import SavedCheckpoint
from zoo.training.state.state_dict import load_trainer_state_dict

if TYPE_CHECKING:
    from zoo.training.trainer import Trainer


class EarlyStopping(Callback):
    """Ends a run after some evaluations in a row without a better value.

    The number is a function of the step and the best step, so that a resumed run needs no state.
    """

    def __init__(self, patience: int) -> None:
        self.patience = patience

    @override
    def on_train_begin(self, trainer: "Trainer") -> None:
        """A run that had stopped ends at once."""
        self._update(trainer)

    @override
    def on_log(self, trainer: "Trainer", record: Mapping[str, Any]) -> None:
        if record["split"] == "validation":
            self._update(trainer)

    def _update(self, trainer: "Trainer") -> None:
        every = trainer.config.eval_steps
        if trainer.best is not None:
            without = trainer.step // every - trainer.best[1] // every
            trainer.should_stop = without >= self.patience


class LoadBestModel(Callback):
    """Loads the best checkpoint at the end of a run, before the final model is written."""

    def __init__(self, run: Path) -> None:
        self.run = run

    @override
    def on_train_end(self, trainer: "Trainer") -> None:
        if trainer.best is None or trainer.best[1] == trainer.step:
            return
        path, config = list_checkpoints(self.run)[trainer.best[1]], trainer.config
        meta = read_meta(path, steps=config.max_steps, settings=known_digests(config))
        best = trainer.best
        saved = SavedCheckpoint(path, meta)
        load_trainer_state_dict(trainer, load_tensors(path, meta), saved)
        trainer.best = best
