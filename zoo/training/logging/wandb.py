"""Curves in Weights & Biases, by the package ``wandb``."""

from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

from zoo.errors import SourceError
from zoo.overrides import override
from zoo.plugins.logger import ScalarLogger
from zoo.training.config.overrides import read_config_file
from zoo.training.logging.run_history import SETTINGS


class WandbLogger(ScalarLogger):
    """Writes scalars to W&B, with its variables ``WANDB_PROJECT``, ``WANDB_MODE`` and others."""

    # Each process is a run of W&B, in a group with the name of the run's directory: a resumed run
    # repeats steps, and W&B accepts increasing steps only.

    name: ClassVar[str] = "wandb"
    requires: ClassVar[str] = "wandb"
    install: ClassVar[str] = "pip install wandb"

    def __init__(self, run: Path, step: int = 0) -> None:
        super().__init__(run, step)
        import wandb

        settings = wandb.Settings(silent=True, console="off")  # standard output is the command's
        try:
            self._run = wandb.init(
                dir=run,
                group=run.name,
                name=f"{run.name}-{step}" if step else run.name,
                config=read_config_file(run / SETTINGS),
                settings=settings,
            )
        except wandb.Error as error:
            hint = "`wandb login`, or set WANDB_MODE=offline"
            raise SourceError(f"W&B: {error}", hint) from error

    @override
    def log_scalars(self, scalars: Mapping[str, float], step: int) -> None:
        self._run.log(dict(scalars), step=step)

    @override
    def close(self) -> None:
        """Upload the remaining records."""
        self._run.finish()
