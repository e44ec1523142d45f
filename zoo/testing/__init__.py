"""The conformance kit as pytest classes; its checks are in ``zoo.conformance``.

The classes are imported when they are used, since they need pytest and torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from zoo.testing.conformance import FamilyTests, ReferenceTests

__all__ = ["FamilyTests", "ReferenceTests"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        return getattr(import_module(f"{__name__}.conformance"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
