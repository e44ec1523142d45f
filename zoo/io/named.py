"""Classes that are looked up by name, and imported on first use."""

import importlib
from collections.abc import Mapping
from typing import Any

from zoo.errors import UsageError, did_you_mean


def import_named(targets: Mapping[str, str], name: str, kind: str) -> Any:
    """Return the object of a name."""
    if name not in targets:
        raise UsageError(
            f"no {kind} is called {name!r}",
            did_you_mean(name, list(targets)) or f"there are {', '.join(sorted(targets))}",
        )
    module, _, attribute = targets[name].partition(":")
    return getattr(importlib.import_module(module), attribute)
