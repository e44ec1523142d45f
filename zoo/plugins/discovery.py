"""Discovery of installed plugins by their entry points, without importing them."""

import functools
import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass

from zoo.errors import PluginError, did_you_mean
from zoo.plugins.enabled import may_be_loaded, requested_plugins
from zoo.plugins.entry_points import (
    API,
    DISTRIBUTION,
    MODEL_TYPES,
    installed_entry_points,
)
from zoo.plugins.settings import read_settings, settings_file

LOGGERS = "loggers"  # the plugin of the built-in loggers
FORMATS = "converters"  # the plugin of the built-in formats
ALWAYS = (FORMATS, LOGGERS)


@dataclass(frozen=True)
class PluginInfo:
    """An installed plugin, not necessarily imported."""

    name: str  # Name of the entry point.
    distribution: str
    version: str  # Version of the distribution.
    module: str  # Value of the entry point, a module.
    api: int = API  # Version of the plugin API that it is written for.

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
    """Return name -> plugins with that name, including those that may not be loaded."""
    # pluggy can load entry points itself, but silently drops one of two plugins with the same name,
    # and stops at the first that fails to import.
    #
    # Built-in ones are first. A distribution may have an entry point for several versions of the
    # plugin API; the one for this version counts.
    plugins: dict[str, list[PluginInfo]] = {}
    for points in installed_entry_points():
        for name, (module, api) in points.plugins().items():
            plugin = PluginInfo(name, points.distribution, points.version, module, api)
            plugins.setdefault(name, []).append(plugin)
    return plugins


@functools.cache
def entry_points_by_name() -> dict[str, list[PluginInfo]]:
    """Return name -> plugins with that name, of those that may be loaded. Imports none."""
    # ``$ZOO_PLUGINS`` restricts them, else the file ``$ZOO_HOME/plugins.yaml``; built-in formats
    # and loggers are always included
    plugins = all_entry_points()
    requested = requested_plugins()
    place = "$ZOO_PLUGINS names"
    if requested is None:
        requested = [*(read_settings().enabled or ())]
        place = f"{settings_file()} enables"
    for name in requested:
        if name not in plugins:
            remedy = f"installed: {', '.join(sorted(plugins))}"
            if "ZOO_PLUGINS" not in os.environ:
                remedy = f"`zoo plugins disable {name}` removes it"
            raise PluginError(
                f"{place} {name}, which is not installed",
                did_you_mean(name, list(plugins)) or remedy,
            )
    allowed = may_be_loaded()
    return {name: plugins[name] for name in plugins if name in ALWAYS or allowed(name)}


@functools.cache
def installed() -> dict[str, PluginInfo]:
    """Return name -> plugin that may be loaded; names of several third parties are left out."""
    chosen = {name: choose(rivals) for name, rivals in entry_points_by_name().items()}
    return {name: plugin for name, plugin in chosen.items() if plugin is not None}


@functools.cache
def declared_model_types() -> dict[str, tuple[str, ...]]:
    """Return model type -> names of the plugins that may be loaded and declare it."""
    # A plugin declares the model types of its families by entry points with its own module, and
    # need not declare its name
    names = {(p.distribution, p.module): p.name for p in installed().values()}
    declared: dict[str, tuple[str, ...]] = {}
    for points in installed_entry_points():
        for model_type, module in points.of(MODEL_TYPES).items():
            if (name := names.get((points.distribution, module))) is not None:
                declared[model_type] = (*declared.get(model_type, ()), name)
    return declared


def choose(rivals: list[PluginInfo]) -> PluginInfo | None:
    """Return which of several plugins with one name to load: the built-in one, or ``None``."""
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


def contested(noun: str, name: str, plugins: Sequence[PluginInfo]) -> PluginError:
    """Return the error for what several plugins provide under one name."""
    from_each = " and ".join(f"{p.name} from {p.origin}" for p in plugins)
    return PluginError(
        f"{len(plugins)} plugins provide the {noun} {name}: {from_each}", removal_hint(plugins[-1])
    )


def removal_hint(plugin: PluginInfo) -> str:
    """Return how to leave out a plugin that takes a name of others."""
    return f"uninstall {plugin.distribution}, or `zoo plugins disable {plugin.name}`"


def record_digest(plugin: PluginInfo) -> str | None:
    """Return the SHA-256 of the file list of a plugin's distribution; ``None`` without one."""
    from importlib import metadata

    for distribution in metadata.distributions(name=plugin.distribution):
        text = distribution.read_text("RECORD") if distribution.version == plugin.version else None
        if text is not None:  # the metadata of a source tree may come first and have none
            return hashlib.sha256(text.encode()).hexdigest()
    return None


def disabled_hint(name: str) -> str:
    """Return the remedy for an unknown name whose plugin is disabled; empty for other names."""
    if "ZOO_PLUGINS" in os.environ or name not in all_entry_points():
        return ""
    if name in ALWAYS or read_settings().allows(name):
        return ""
    return f"the plugin is disabled in {settings_file()}: `zoo plugins enable {name}`"
