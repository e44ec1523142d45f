"""Which installed plugins may be loaded: by ``$ZOO_PLUGINS``, else by the settings of the user."""

import os
from collections.abc import Callable

from zoo.plugins.entry_points import SETTINGS


def requested_plugins() -> list[str] | None:
    """Return the names in ``$ZOO_PLUGINS``; ``None`` if it is not set."""
    text = os.environ.get("ZOO_PLUGINS")
    if text is None:
        return None
    names = (part.strip() for part in text.split(","))
    return [name for name in names if name]


def may_be_loaded() -> Callable[[str], bool]:
    """Return a function that says whether the plugin with a name may be loaded."""
    requested_names = requested_plugins()
    if requested_names is not None:
        return requested_names.__contains__
    from zoo.io.paths import home

    if not os.path.lexists(home() / SETTINGS):
        return lambda name: True
    from zoo.plugins.settings import read_settings  # imports msgspec

    return read_settings().allows
