"""Attribution of an exception to the plugin in whose files it was raised."""

import os
import sys
import traceback
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from zoo.errors import PluginError, UsageError, ZooError, did_you_mean
from zoo.plugins.discovery import PluginInfo, entry_points_by_name
from zoo.plugins.entry_point_objects import KINDS, named_objects
from zoo.plugins.loading import broken

if TYPE_CHECKING:
    from zoo.families.base import Family


def plugin_error(error: BaseException) -> PluginError | None:
    """Return the error for an exception from a third party's plugin, else ``None``."""
    # An exception in a built-in family is a bug of zoo
    parties = _third_parties()
    if not parties:
        return None
    for module, path, number in _locations(error):
        for package, plugin in parties.items():
            folders = getattr(sys.modules.get(package), "__path__", ())
            inside = any(path.startswith(folder + os.sep) for folder in folders)
            if inside or _belongs(module, package):
                place = f"{os.path.basename(path)}, line {number}, of {module or package}"
                return broken(plugin, f"{_message(error)} ({place})")
    return None


def provider_error(provided: object, error: Exception) -> PluginError | None:
    """Return the error for an exception in a method of a plugin's family or format."""
    plugin_fault = plugin_error(error)
    if plugin_fault is not None:
        return plugin_fault
    plugin = third_party(provided)
    if plugin is None:
        return None
    return broken(plugin, f"{type(error).__name__}: {error}")


def third_party(provided: object) -> PluginInfo | None:
    """Return the plugin that provides a family or file format; ``None`` for a built-in one."""
    module = type(provided).__module__
    for package, plugin in _third_parties().items():
        if _belongs(module, package):
            return plugin
    return None


def config_of_size(family: "Family", size: str) -> Any:
    """Return the configuration of a size of a family."""
    sizes = family.sizes()
    if size in sizes:
        return sizes[size]
    if size == "tiny" and (plugin := third_party(family)):
        raise broken(plugin, f"its family {family.name} has no size 'tiny', which is mandatory")
    raise UsageError(
        f"{family.name} has no size {size!r}",
        did_you_mean(size, list(sizes)) or f"it has {', '.join(sizes)}",
    )


def _belongs(module: str, package: str) -> bool:
    return module == package or module.startswith(f"{package}.")


def _third_parties() -> dict[str, PluginInfo]:
    """Return package -> plugin, for plugins of other distributions."""
    plugins: list[PluginInfo] = []
    try:
        for rivals in entry_points_by_name().values():
            plugins += rivals
        for kind in KINDS:
            plugins += [named.plugin for named in named_objects(kind)]
    except ZooError:  # It is reported where a command loads plugins.
        return {}
    parties = {}
    for plugin in plugins:
        if plugin.built_in:
            continue
        module = plugin.module.partition(":")[0].strip()
        package = getattr(sys.modules.get(module), "__package__", None)
        parties[package or module] = plugin
    return parties


def _message(error: BaseException) -> str:
    """Return the name and the message of an exception in one line."""
    name = type(error).__name__
    message = str(error)
    if isinstance(error, SyntaxError):
        message = error.msg
    line = " ".join(message.split())
    return f"{name}: {line}" if line else name


def _locations(error: BaseException) -> Iterator[tuple[str, str, int]]:
    """Yield module, file and line of a syntax error and of each frame, the innermost first."""
    if isinstance(error, SyntaxError) and error.filename:
        yield "", error.filename, error.lineno or 0
    for frame, number in reversed(list(traceback.walk_tb(error.__traceback__))):
        yield frame.f_globals.get("__name__", ""), frame.f_code.co_filename, number
