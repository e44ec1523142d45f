"""Discovery of installed plugins by their entry points, without importing them.

pluggy can load entry points itself, but silently drops one of two plugins with the same name, and
stops at the first that fails to import.
"""

import functools
import hashlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata

from zoo.errors import PluginError, did_you_mean
from zoo.plugins.entry_points import API, CURRENT, DISTRIBUTION, MODEL_TYPES, PLUGINS
from zoo.plugins.settings import read_settings, settings_file

LOGGERS = "loggers"  # the plugin of the built-in loggers
FORMATS = "converters"  # the plugin of the built-in formats
ALWAYS = (FORMATS, LOGGERS)


@dataclass(frozen=True)
class PluginInfo:
    """An installed plugin, not necessarily imported.

    Attributes:
        name: name of the entry point.
        distribution: name of its distribution.
        version: version of the distribution.
        module: value of the entry point, a module.
        api: version of the plugin API that it is written for.
    """

    name: str
    distribution: str
    version: str
    module: str
    api: int = API

    @property
    def built_in(self) -> bool:
        """True if the plugin is part of zoo."""
        return self.distribution == DISTRIBUTION

    @property
    def origin(self) -> str:
        """Name and version of the distribution."""
        return f"{self.distribution} {self.version}"


@functools.cache
def all_entry_points() -> dict[str, list[PluginInfo]]:
    """Return name -> plugins with that name, those that may not be loaded included.

    A distribution may have an entry point for several versions of the plugin API; the one for this
    version counts.
    """
    plugins: dict[str, list[PluginInfo]] = {}
    for plugin in _entry_points():
        rivals = plugins.setdefault(plugin.name, [])
        same = [r for r in rivals if _is_same(r, plugin)]
        if not any(r.api in (API, plugin.api) for r in same):
            rivals[:] = [r for r in rivals if r not in same] + [plugin]
    return plugins


def _is_same(first: PluginInfo, second: PluginInfo) -> bool:
    """Return whether two entry points are of one plugin: found twice, or for two versions."""
    same_distribution = first.distribution == second.distribution
    return same_distribution and (first.module == second.module or first.api != second.api)


def _entry_points() -> Iterator[PluginInfo]:
    points = metadata.entry_points()
    origin = functools.cache(_origin)  # most are of one distribution, whose metadata are parsed
    for group in sorted(points.groups):
        if match := PLUGINS.fullmatch(group):
            for point in points.select(group=group):
                name, version = origin(point.dist)
                yield PluginInfo(point.name, name, version, point.value, int(match[1] or 1))


def _origin(distribution: metadata.Distribution | None) -> tuple[str, str]:
    """Return name and version of a distribution."""
    return (distribution.name, distribution.version) if distribution else ("?", "?")


@functools.cache
def entry_points_by_name() -> dict[str, list[PluginInfo]]:
    """Return name -> plugins with that name, of those that may be loaded. Imports none.

    ``$ZOO_PLUGINS`` restricts them, else the file ``$ZOO_HOME/plugins.yaml``; built-in formats and
    loggers are always included.

    Raises:
        PluginError: ``$ZOO_PLUGINS`` or the file names one that is not installed.
        VerificationError: the file is malformed.
    """
    plugins = all_entry_points()
    requested = os.environ.get("ZOO_PLUGINS")
    if requested is None:
        settings = read_settings()
        for name in settings.enabled or ():
            if name not in plugins:
                raise PluginError(
                    f"{settings_file()} enables {name}, which is not installed",
                    did_you_mean(name, list(plugins)) or f"`zoo plugins disable {name}` removes it",
                )
        return {name: plugins[name] for name in plugins if name in ALWAYS or settings.allows(name)}
    names = [name.strip() for name in requested.split(",") if name.strip()]
    for name in names:
        if name not in plugins:
            raise PluginError(
                f"$ZOO_PLUGINS names {name}, which is not installed",
                did_you_mean(name, list(plugins)) or f"installed: {', '.join(sorted(plugins))}",
            )
    return {name: plugins[name] for name in plugins if name in (*names, *ALWAYS)}


@functools.cache
def installed() -> dict[str, PluginInfo]:
    """Return the plugins that may be loaded by name, without names of several third parties.

    Raises:
        PluginError: ``$ZOO_PLUGINS`` names one that is not installed.
        VerificationError: the file of enabled plugins is malformed.
    """
    chosen = {name: choose(rivals) for name, rivals in entry_points_by_name().items()}
    return {name: plugin for name, plugin in chosen.items() if plugin is not None}


@functools.cache
def declared_model_types() -> dict[str, tuple[str, ...]]:
    """Return model type -> names of the plugins that declare it, of those that may be loaded.

    A plugin declares the model types of its families by entry points with its own module, and need
    not declare its name.
    """
    names = {(p.distribution, p.module): p.name for p in installed().values()}
    declared: dict[str, tuple[str, ...]] = {}
    origin = functools.cache(_origin)
    for group in CURRENT:
        for point in metadata.entry_points(group=f"{group}.{MODEL_TYPES}"):
            name = names.get((origin(point.dist)[0], point.value))
            if name is not None and name not in declared.get(point.name, ()):
                declared[point.name] = (*declared.get(point.name, ()), name)
    return declared


def choose(rivals: list[PluginInfo]) -> PluginInfo | None:
    """Return the plugin to load of those with one name; ``None`` if there is no reason for any.

    A built-in plugin precedes those of third parties.
    """
    candidates = rivals if len(rivals) == 1 else [r for r in rivals if r.built_in]
    return candidates[0] if len(candidates) == 1 else None


def conflict(rivals: list[PluginInfo]) -> PluginError | None:
    """Return the error for several plugins with one name; ``None`` for a single one."""
    if len(rivals) == 1:
        return None
    from_each = ", ".join(f"one from {r.origin}" for r in rivals)
    others = [r.distribution for r in rivals if not r.built_in]
    hint = "uninstall all but one" if len(others) == len(rivals) else f"uninstall {others[0]}"
    return PluginError(f"{len(rivals)} plugins are called {rivals[0].name}: {from_each}", hint)


def record_digest(plugin: PluginInfo) -> str | None:
    """Return the SHA-256 of the list of files of a plugin's distribution; ``None`` without one."""
    for distribution in metadata.distributions(name=plugin.distribution):
        text = distribution.read_text("RECORD") if distribution.version == plugin.version else None
        if text is not None:  # the metadata of a source tree, which may come first, has none
            return hashlib.sha256(text.encode()).hexdigest()
    return None


def disabled_hint(name: str) -> str:
    """Return the remedy for a name that is not known because its plugin is disabled, if it is."""
    if "ZOO_PLUGINS" in os.environ or name not in all_entry_points():
        return ""
    if name in ALWAYS or read_settings().allows(name):
        return ""
    return f"the plugin is disabled in {settings_file()}: `zoo plugins enable {name}`"
