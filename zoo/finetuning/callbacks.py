"""Callbacks of fine-tuning: early stopping, and the best checkpoint as the final model."""

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from zoo.evaluation.mistakes import MistakeCollector
from zoo.hub.files import map_os_errors
from zoo.io.json import encode_json
from zoo.io.output.atomic import atomic_write
from zoo.overrides import override
from zoo.report.mistakes import MISTAKES
from zoo.training.dataloader import LazyBatches
from zoo.training.state.checkpoints import DISK_FULL_HINT, accepted_digests, load_tensors, read_meta
from zoo.training.state.progress import list_checkpoints
from zoo.training.state.recovery import SavedCheckpoint
from zoo.training.state.state_dict import load_trainer_state_dict
from zoo.training.trainer import Callback, Trainer

if TYPE_CHECKING:
    from zoo.finetuning.objective import FineTuning

LOG = logging.getLogger("zoo")


class EarlyStopping(Callback):
    """Ends a run after some evaluations in a row without a better value.

    The number is a function of the step and the best step, so that a resumed run needs no state.
    """

    def __init__(self, patience: int) -> None:
        self.patience = patience

    @override
    def on_train_begin(self, trainer: Trainer) -> None:
        """A run that had stopped ends at once."""
        self._update(trainer)

    @override
    def on_log(self, trainer: Trainer, record: Mapping[str, Any]) -> None:
        if record["split"] == "validation":
            self._update(trainer)

    def _update(self, trainer: Trainer) -> None:
        every = trainer.config.eval_steps
        if trainer.best is not None:
            without = trainer.step // every - trainer.best[1] // every
            trainer.should_stop = without >= self.patience


class RecordMistakes(Callback):
    """Writes ``mistakes.json``: what the model gets wrong at the best evaluation."""

    def __init__(self, run: Path, objective: "FineTuning", samples: Sequence[Any]) -> None:
        self.run = run
        self.objective = objective
        self.samples = samples

    @override
    def on_log(self, trainer: Trainer, record: Mapping[str, Any]) -> None:
        is_best = trainer.best is not None and trainer.best[1] == trainer.step
        batches = trainer.eval_batches
        if record["split"] != "validation" or not is_best or not isinstance(batches, LazyBatches):
            return
        numbers = trainer.dist.gather_rows({"rows": torch.tensor(batches.rows)})["rows"].tolist()
        if not trainer.dist.is_main_process:
            return
        predictions = {name: tensor.numpy() for name, tensor in trainer.predictions.items()}
        results = self.objective.task.results
        class_names = results.class_names(self.objective.context)
        collector = MistakeCollector(results.mistake, class_names)
        rows = self.objective.report_rows(predictions, self.samples, numbers)
        # A distillation without the task's loss has no predictions.
        if predictions:
            for row in rows:
                collector.add(row)
        mistakes = collector.mistakes(trainer.step)
        if mistakes.samples:
            with map_os_errors(self.run, DISK_FULL_HINT):
                atomic_write(self.run / MISTAKES, encode_json(mistakes))


class LoadBestModel(Callback):
    """Loads the best checkpoint at the end of a run, before the final model is written."""

    def __init__(self, run: Path) -> None:
        self.run = run

    @override
    def on_train_end(self, trainer: Trainer) -> None:
        if trainer.best is None or trainer.best[1] == trainer.step:
            return
        path = list_checkpoints(self.run)[trainer.best[1]]
        config = trainer.config
        meta = read_meta(path, steps=config.max_steps, settings=accepted_digests(config))
        best = trainer.best
        saved = SavedCheckpoint(path, meta)
        load_trainer_state_dict(trainer, load_tensors(path, meta), saved)
        trainer.best = best
