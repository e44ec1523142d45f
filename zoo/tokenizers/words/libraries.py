"""Libraries that split texts, which extras install."""

import importlib
from types import ModuleType

from zoo.errors import UsageError


def load_library(name: str, tool: str, command: str) -> ModuleType:
    """Import a library that splits texts.

    Args:
        name: name of the module.
        tool: what splits the texts, for messages.
        command: what installs it.

    Raises:
        UsageError: it is not installed.
    """
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise UsageError(
            f"texts of this tokenizer are split by {tool}, and {error.name} is not installed",
            command,
        ) from error
