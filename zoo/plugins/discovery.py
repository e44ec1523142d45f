"""Which plugins are installed, by their entry points; none is imported.

Entry points are read by ourselves and not by pluggy, which drops one of two plugins with one
name in silence and stops at the first that fails to import.
"""

import functools
import os
from dataclasses import dataclass
from importlib import metadata

from zoo.errors import PluginError, did_you_mean
from zoo.plugins import hookspecs


@dataclass(frozen=True)
class PluginInfo:
    """An installed plugin, imported or not.

    Attributes:
        name: the entry point's name.
        distribution: the distribution that installs it.
        version: that distribution's version.
        module: the module it points at.
    """

    name: str
    distribution: str
    version: str
    module: str


@functools.cache
def entry_points_by_name() -> dict[str, list[PluginInfo]]:
    """Return the plugins that claim a name, by name, restricted by ``$ZOO_PLUGINS``; imports none.

    Raises:
        PluginError: ``$ZOO_PLUGINS`` names one that is not installed.
    """
    found: dict[str, list[PluginInfo]] = {}
    for point in metadata.entry_points(group=hookspecs.GROUP):
        dist = point.dist
        plugin = PluginInfo(
            point.name, dist.name if dist else "?", dist.version if dist else "?", point.value
        )
        rivals = found.setdefault(point.name, [])
        if all((r.module, r.distribution) != (plugin.module, plugin.distribution) for r in rivals):
            rivals.append(plugin)
    return _allowed(found)


@functools.cache
def installed() -> dict[str, PluginInfo]:
    """Return the installed plugins by name, restricted by ``$ZOO_PLUGINS``; imports none.

    Raises:
        PluginError: two distributions claim one name, or ``$ZOO_PLUGINS`` names one that is
            not installed.
    """
    return {name: only(rivals) for name, rivals in entry_points_by_name().items()}


def only(rivals: list[PluginInfo]) -> PluginInfo:
    """Return the one plugin that claims a name.

    Raises:
        PluginError: there are more.
    """
    if len(rivals) > 1:
        from_each = ", ".join(f"one from {r.distribution} {r.version}" for r in rivals)
        raise PluginError(
            f"{len(rivals)} plugins are called {rivals[0].name}: {from_each}",
            "uninstall all but one",
        )
    return rivals[0]


def _allowed(found: dict[str, list[PluginInfo]]) -> dict[str, list[PluginInfo]]:
    """Apply ``$ZOO_PLUGINS``. Plugins of formats alone, ours included, are named there too."""
    wanted = os.environ.get("ZOO_PLUGINS")
    if wanted is None:
        return found
    names = [name.strip() for name in wanted.split(",") if name.strip()]
    for name in names:
        if name not in found:
            raise PluginError(
                f"$ZOO_PLUGINS names {name}, which is not installed",
                did_you_mean(name, list(found)) or f"installed: {', '.join(sorted(found))}",
            )
    return {name: found[name] for name in found if name in (*names, "converters")}
