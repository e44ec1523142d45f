"""Objects that are looked up by name and imported on first use."""

import importlib
from collections.abc import Mapping
from typing import Any

from zoo.errors import UsageError, did_you_mean


def lazy_import(targets: Mapping[str, str], name: str, kind: str) -> Any:
    """Import the object with a name, of ``targets``: name -> ``module:attribute``."""
    if name not in targets:
        raise UsageError(
            f"no {kind} is called {name!r}",
            did_you_mean(name, list(targets)) or f"there are {', '.join(sorted(targets))}",
        )
    module, _, attribute = targets[name].partition(":")
    return getattr(importlib.import_module(module), attribute)


def import_problem(module: str) -> str | None:
    """Return why an optional library cannot be imported; ``None`` if it can."""
    try:
        importlib.import_module(module)
    except ImportError as error:
        return str(error)
    return None
