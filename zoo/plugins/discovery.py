"""Discovery of installed plugins by their entry points, without importing them.

pluggy can load entry points itself, but silently drops one of two plugins with the same name, and
stops at the first that fails to import.
"""

import functools
import os
from dataclasses import dataclass
from importlib import metadata

from zoo.errors import PluginError, did_you_mean
from zoo.plugins import hookspecs

LOGGERS = "loggers"  # the plugin of the built-in loggers
ALWAYS = ("converters", LOGGERS)


@dataclass(frozen=True)
class PluginInfo:
    """An installed plugin, not necessarily imported.

    Attributes:
        name: name of the entry point.
        distribution: name of its distribution.
        version: version of the distribution.
        module: value of the entry point, a module.
    """

    name: str
    distribution: str
    version: str
    module: str


@functools.cache
def entry_points_by_name() -> dict[str, list[PluginInfo]]:
    """Return name -> plugins with that name, restricted to ``$ZOO_PLUGINS``. Imports none.

    Raises:
        PluginError: ``$ZOO_PLUGINS`` names one that is not installed.
    """
    plugins: dict[str, list[PluginInfo]] = {}
    for point in metadata.entry_points(group=hookspecs.GROUP):
        dist = point.dist
        plugin = PluginInfo(
            point.name, dist.name if dist else "?", dist.version if dist else "?", point.value
        )
        rivals = plugins.setdefault(point.name, [])
        if all((r.module, r.distribution) != (plugin.module, plugin.distribution) for r in rivals):
            rivals.append(plugin)
    return _allowed(plugins)


@functools.cache
def installed() -> dict[str, PluginInfo]:
    """Return the installed plugins by name, restricted to ``$ZOO_PLUGINS``. Imports none.

    Raises:
        PluginError: two distributions use one name, or ``$ZOO_PLUGINS`` names one that is
            not installed.
    """
    return {name: only(rivals) for name, rivals in entry_points_by_name().items()}


def only(rivals: list[PluginInfo]) -> PluginInfo:
    """Return the only plugin with a name.

    Raises:
        PluginError: there are several.
    """
    if len(rivals) > 1:
        from_each = ", ".join(f"one from {r.distribution} {r.version}" for r in rivals)
        raise PluginError(
            f"{len(rivals)} plugins are called {rivals[0].name}: {from_each}",
            "uninstall all but one",
        )
    return rivals[0]


def _allowed(plugins: dict[str, list[PluginInfo]]) -> dict[str, list[PluginInfo]]:
    """Restrict plugins to ``$ZOO_PLUGINS``; built-in formats and loggers are always included."""
    requested = os.environ.get("ZOO_PLUGINS")
    if requested is None:
        return plugins
    names = [name.strip() for name in requested.split(",") if name.strip()]
    for name in names:
        if name not in plugins:
            raise PluginError(
                f"$ZOO_PLUGINS names {name}, which is not installed",
                did_you_mean(name, list(plugins)) or f"installed: {', '.join(sorted(plugins))}",
            )
    return {name: plugins[name] for name in plugins if name in (*names, *ALWAYS)}
