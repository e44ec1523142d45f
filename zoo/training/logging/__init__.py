"""Logs of a run: JSON lines, TensorBoard, W&B, MLflow, progress bar and report."""

# The built-in loggers are a plugin, like a third party's. Their modules import the packages that
# they need when a logger is instantiated.

from typing import TYPE_CHECKING

from zoo.plugins.hookspecs import hookimpl

if TYPE_CHECKING:
    from zoo.plugins.logger import Logger


@hookimpl
def zoo_loggers() -> "list[type[Logger]]":
    """Return the built-in loggers."""
    from zoo.training.logging.jsonl import JsonlLogger
    from zoo.training.logging.mlflow import MlflowLogger
    from zoo.training.logging.tensorboard import TensorBoardLogger
    from zoo.training.logging.wandb import WandbLogger

    return [JsonlLogger, TensorBoardLogger, WandbLogger, MlflowLogger]
