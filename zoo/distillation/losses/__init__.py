"""Losses that compare a student with its teachers, one per module."""

import importlib
import pkgutil
from typing import TYPE_CHECKING

from zoo.errors import UsageError, did_you_mean

if TYPE_CHECKING:
    from zoo.distillation.losses.base import DistillationLoss

BASE = "base"  # the one module that is not a loss


def loss_names() -> tuple[str, ...]:
    """Return the names of all losses, the possible kinds of a recipe's terms."""
    modules = (module.name for module in pkgutil.iter_modules(__path__))
    return tuple(name.replace("_", "-") for name in sorted(modules) if name != BASE)


def loss_type(name: str) -> "type[DistillationLoss]":
    """Return the class of a loss.

    Raises:
        UsageError: no loss has this name; the nearest one is suggested.
    """
    # A loss subclasses ``zoo.distillation.losses.base.DistillationLoss``, has the decorator
    # ``distillation_loss``, and lies in the module of its name: ``hidden-mse`` is in
    # ``hidden_mse.py``. Names are listed without importing anything; looking up a loss imports its
    # module.
    require_loss(name, "kind")
    from zoo.distillation.losses.base import LOSSES

    importlib.import_module(f"{__name__}.{name.replace('-', '_')}")
    return LOSSES[name]


def require_loss(name: str, setting: str) -> None:
    """Check that the value of a setting is the name of a loss."""
    if name not in loss_names():
        hint = did_you_mean(name, loss_names()) or f"there are {', '.join(loss_names())}"
        raise UsageError(f"{setting} is {name!r}, which is not a distillation loss", hint)
