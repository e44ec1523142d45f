"""The callback that says at the end of a run how many texts were cut."""

import logging
from collections.abc import Callable, Sequence

from zoo.objectives.base import ExampleDataset
from zoo.overrides import override
from zoo.training.trainer import Callback, Trainer

LOG = logging.getLogger("zoo")


class ReportCutTexts(Callback):
    """Says at the end of a run how many texts were cut, in the main process only.

    Args:
        lines: returns the lines, given the trainer.
        warn: whether they are warnings; otherwise the recipe cuts texts on purpose.
    """

    def __init__(self, lines: Callable[[Trainer], Sequence[str]], *, warn: bool = True) -> None:
        self.lines = lines
        self.warn = warn

    @override
    def on_train_end(self, trainer: Trainer) -> None:
        if not trainer.dist.is_main_process:
            return
        for line in self.lines(trainer):
            if self.warn:
                LOG.warning("warning: %s", line)
            else:
                LOG.info("%s", line)


def cut_training_rows(trainer: Trainer) -> list[str]:
    """Return what a run says about texts that were cut to fit into the rows of its data."""
    dataset = trainer.train_dataloader.dataset
    return dataset.cut_lines() if isinstance(dataset, ExampleDataset) else []
