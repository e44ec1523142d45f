"""The losses that compare a student with its teachers: one module for each.

A loss is a subclass of ``zoo.distillation.losses.base.DistillationLoss`` with the decorator
``distillation_loss`` in the module of its name: ``hidden-mse`` is in ``hidden_mse.py``. Names are
listed without an import, and a loss is imported when it is looked up.
"""

import importlib
import pkgutil
from typing import TYPE_CHECKING

from zoo.errors import UsageError, did_you_mean

if TYPE_CHECKING:
    from zoo.distillation.losses.base import DistillationLoss

BASE = "base"  # the one module that is not a loss


def loss_names() -> tuple[str, ...]:
    """Return the names of all losses, which are the kinds of a recipe's terms."""
    modules = (module.name for module in pkgutil.iter_modules(__path__))
    return tuple(name.replace("_", "-") for name in sorted(modules) if name != BASE)


def loss_type(name: str) -> "type[DistillationLoss]":
    """Return the class of a loss.

    Raises:
        UsageError: there is none with this name; the nearest is suggested.
    """
    require_loss(name, "kind")
    from zoo.distillation.losses.base import LOSSES

    importlib.import_module(f"{__name__}.{name.replace('-', '_')}")
    return LOSSES[name]


def require_loss(name: str, setting: str) -> None:
    """Check that a setting is the name of a loss."""
    if name not in loss_names():
        hint = did_you_mean(name, loss_names()) or f"there are {', '.join(loss_names())}"
        raise UsageError(f"{setting} is {name!r}, which is not a distillation loss", hint)
