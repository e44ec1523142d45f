"""Import of plugins, one at a time, and reports of broken ones."""

import functools
import os
import warnings
from collections.abc import Iterable
from importlib import metadata
from typing import TYPE_CHECKING, Any

from zoo.errors import PluginError, UsageError, did_you_mean
from zoo.plugins import hookspecs
from zoo.plugins.discovery import PluginInfo, entry_points_by_name, only

if TYPE_CHECKING:
    import pluggy


class PluginWarning(UserWarning):
    """Warning about a broken plugin; other plugins are not affected."""


@functools.cache
def manager() -> "pluggy.PluginManager":
    """Return the plugin manager, with the hooks of the plugins that are loaded."""
    import pluggy

    plugin_manager = pluggy.PluginManager(hookspecs.GROUP)
    plugin_manager.add_hookspecs(hookspecs)
    return plugin_manager


def require_installed(name: str) -> None:
    """Check that a plugin is installed, without importing it.

    Raises:
        UsageError: no plugin has that name.
    """
    plugins = entry_points_by_name()
    if name not in plugins:
        raise UsageError(
            f"no plugin is called {name!r}",
            did_you_mean(name, list(plugins)) or f"installed: {', '.join(sorted(plugins))}",
        )


def load(name: str) -> Any:
    """Import one plugin and register its hooks.

    Raises:
        UsageError: no plugin has that name.
        PluginError: two plugins have that name, the import fails, or a hook does not match its
            specification.
    """
    import pluggy

    require_installed(name)
    plugin, hooks = only(entry_points_by_name()[name]), manager()
    if hooks.has_plugin(name):
        return hooks.get_plugin(name)
    try:
        module = metadata.EntryPoint(name, plugin.module, hookspecs.GROUP).load()
        hooks.register(module, name)
        hooks.check_pending()
    except pluggy.PluginValidationError as error:
        hooks.unregister(name=name)
        raise broken(plugin, str(error)) from error
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # a third-party module can raise any exception
        raise broken(plugin, f"{type(error).__name__}: {error}") from error
    return module


def warn_or_raise(error: PluginError) -> None:
    """Warn of a broken plugin, or raise the error if ``ZOO_STRICT_PLUGINS=1``."""
    if os.environ.get("ZOO_STRICT_PLUGINS") == "1":
        raise error
    _warn_once(str(error))


@functools.cache
def _warn_once(line: str) -> None:
    warnings.warn(line, PluginWarning, stacklevel=3)


def broken(plugin: PluginInfo, reason: str) -> PluginError:
    """Return the error for a broken plugin."""
    line = " ".join(reason.split())
    return PluginError(
        f"plugin {plugin.name} (from {plugin.distribution} {plugin.version}) is broken: {line}",
        "reinstall or uninstall it",
    )


def hooks_of(name: str) -> list[str]:
    """Return the names of the hooks that a loaded plugin implements."""
    callers: Iterable[Any] = manager().get_hookcallers(load(name)) or ()
    return sorted(caller.name for caller in callers)
