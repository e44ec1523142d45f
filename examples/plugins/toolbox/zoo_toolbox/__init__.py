"""A plugin without a family: a format, a checkpoint, a recipe and a logger.

Its objective, its task and its command are entry points in ``pyproject.toml``.
"""

from pathlib import Path
from typing import TYPE_CHECKING

from zoo.plugins.hookspecs import hookimpl

if TYPE_CHECKING:
    from zoo.families.distillation import DistillationRecipe
    from zoo.io.tensors.formats import Format
    from zoo.plugins.logger import Logger


@hookimpl
def zoo_formats() -> "tuple[Format, ...]":
    """Return the file format."""
    from zoo_toolbox.npz import Npz

    return (Npz(),)


@hookimpl
def zoo_checkpoints() -> tuple[Path, ...]:
    """Return the registry file of published checkpoints."""
    return (Path(__file__).with_name("registry.yaml"),)


@hookimpl
def zoo_recipes() -> "tuple[DistillationRecipe, ...]":
    """Return the distillation recipe."""
    from zoo_toolbox.recipe import SOFT_LABELS

    return (SOFT_LABELS,)


@hookimpl
def zoo_loggers() -> "tuple[type[Logger], ...]":
    """Return the logger."""
    from zoo_toolbox.csv_logger import CsvLogger

    return (CsvLogger,)
