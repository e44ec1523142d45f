"""Finding and loading plugins: one when one is needed, all when all are asked for.

Entry points are read by ourselves and not by pluggy, which drops one of two plugins with one
name in silence and stops at the first that fails to import.
"""

import functools
import os
import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from zoo import hookspecs
from zoo.errors import PluginError, UsageError, nearest

if TYPE_CHECKING:
    import pluggy

    from zoo.family import Family
    from zoo.formats import Format


@dataclass(frozen=True)
class Found:
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


class PluginWarning(UserWarning):
    """A plugin could not be used; the others work."""


@functools.cache
def claimed() -> dict[str, list[Found]]:
    """Return the plugins that claim a name, by name, restricted by ``$ZOO_PLUGINS``; imports none.

    Raises:
        PluginError: ``$ZOO_PLUGINS`` names one that is not installed.
    """
    found: dict[str, list[Found]] = {}
    for point in metadata.entry_points(group=hookspecs.GROUP):
        dist = point.dist
        plugin = Found(
            point.name, dist.name if dist else "?", dist.version if dist else "?", point.value
        )
        rivals = found.setdefault(point.name, [])
        if all((r.module, r.distribution) != (plugin.module, plugin.distribution) for r in rivals):
            rivals.append(plugin)
    return _allowed(found)


@functools.cache
def installed() -> dict[str, Found]:
    """Return the installed plugins by name, restricted by ``$ZOO_PLUGINS``; imports none.

    Raises:
        PluginError: two distributions claim one name, or ``$ZOO_PLUGINS`` names one that is
            not installed.
    """
    return {name: _only(rivals) for name, rivals in claimed().items()}


def _only(rivals: list[Found]) -> Found:
    if len(rivals) > 1:
        from_each = ", ".join(f"one from {r.distribution} {r.version}" for r in rivals)
        raise PluginError(
            f"{len(rivals)} plugins are called {rivals[0].name}: {from_each}",
            "uninstall all but one",
        )
    return rivals[0]


def _allowed(found: dict[str, list[Found]]) -> dict[str, list[Found]]:
    """Apply ``$ZOO_PLUGINS``. Plugins of formats alone, ours included, are named there too."""
    wanted = os.environ.get("ZOO_PLUGINS")
    if wanted is None:
        return found
    names = [name.strip() for name in wanted.split(",") if name.strip()]
    for name in names:
        if name not in found:
            raise PluginError(
                f"$ZOO_PLUGINS names {name}, which is not installed",
                nearest(name, list(found)) or f"installed: {', '.join(sorted(found))}",
            )
    return {name: found[name] for name in found if name in (*names, "converters")}


@functools.cache
def _manager() -> "pluggy.PluginManager":
    import pluggy

    manager = pluggy.PluginManager(hookspecs.GROUP)
    manager.add_hookspecs(hookspecs)
    return manager


def load(name: str) -> Any:
    """Import one plugin and register its hooks.

    Raises:
        UsageError: no plugin has that name.
        PluginError: another has that name, too, it fails to import, or a hook of it does not fit
            its specification.
    """
    import pluggy

    plugins = claimed()
    if name not in plugins:
        raise UsageError(
            f"no plugin is called {name!r}",
            nearest(name, list(plugins)) or f"installed: {', '.join(sorted(plugins))}",
        )
    plugin, manager = _only(plugins[name]), _manager()
    if manager.has_plugin(name):
        return manager.get_plugin(name)
    try:
        module = metadata.EntryPoint(name, plugin.module, hookspecs.GROUP).load()
        manager.register(module, name)
        manager.check_pending()
    except pluggy.PluginValidationError as error:
        manager.unregister(name=name)
        raise broken(plugin, str(error)) from error
    except (Exception, SystemExit) as error:  # whatever a third party's module raises
        raise broken(plugin, f"{type(error).__name__}: {error}") from error
    return module


def go_on_without(error: PluginError) -> None:
    """Make a line of warning of a broken plugin, or an error if ``ZOO_STRICT_PLUGINS=1``."""
    if os.environ.get("ZOO_STRICT_PLUGINS") == "1":
        raise error
    _warn_once(str(error))


@functools.cache
def _warn_once(line: str) -> None:
    warnings.warn(line, PluginWarning, stacklevel=3)


def broken(plugin: Found, why: str) -> PluginError:
    """Return the error of a plugin that does not work."""
    line = " ".join(why.split())
    return PluginError(
        f"plugin {plugin.name} (from {plugin.distribution} {plugin.version}) is broken: {line}",
        "reinstall or uninstall it",
    )


def _of(name: str, hook: str) -> list[Any]:
    """Return what one plugin's hook returns."""
    load(name)
    manager = _manager()
    call = manager.subset_hook_caller(hook, [p for n, p in manager.list_name_plugin() if n != name])
    try:
        found = [item for items in call() for item in items]
    except (Exception, SystemExit) as error:  # whatever a third party's hook raises
        raise broken(installed()[name], f"{hook}: {type(error).__name__}: {error}") from error
    for item in found:
        if not isinstance(item, _returned(hook)):
            raise broken(installed()[name], f"{hook} returned a {type(item).__name__}")
    return found


def _returned(hook: str) -> type:
    """Return what a hook's values must be instances of."""
    from zoo.family import Family
    from zoo.formats import Format

    kinds: dict[str, type] = {"zoo_families": Family, "zoo_formats": Format}
    return kinds.get(hook, Path)


def _of_all(hook: str) -> list[tuple[str, Any]]:
    """Return (plugin name, value) for every value that every plugin's hook returns."""
    found = []
    for name in installed():
        try:
            found += [(name, item) for item in _of(name, hook)]
        except PluginError as error:
            go_on_without(error)
    return found


def get_family(name: str) -> "Family":
    """Return a family by name, importing its plugin alone where the entry point has its name.

    Raises:
        UsageError: no plugin provides it.
        PluginError: its plugin is broken, or two plugins provide it.
    """
    if name in installed():
        for family in _of(name, "zoo_families"):
            if family.name == name:
                return family  # type: ignore[no-any-return]
    families = all_families()
    if name not in families:
        raise UsageError(
            f"no family is called {name!r}",
            nearest(name, list(families)) or f"available: {', '.join(sorted(families))}",
        )
    return families[name]


def all_families() -> "dict[str, Family]":
    """Return every family by name.

    Raises:
        PluginError: two plugins provide families of one name.
    """
    found: dict[str, Family] = {}
    by: dict[str, str] = {}
    for plugin, family in _of_all("zoo_families"):
        if family.name in found:
            ours, theirs = installed()[by[family.name]], installed()[plugin]
            raise PluginError(
                f"two plugins provide the family {family.name}: {ours.name} from "
                f"{ours.distribution} and {theirs.name} from {theirs.distribution}",
                "uninstall one of them",
            )
        found[family.name], by[family.name] = family, plugin
    return found


def family_of_model_type(model_type: str) -> "Family | None":
    """Return the family that answers for a Hub ``model_type``, or ``None``."""
    if model_type in installed():
        for family in _of(model_type, "zoo_families"):
            if model_type in family.model_types:
                return family  # type: ignore[no-any-return]
    for family in all_families().values():
        if model_type in family.model_types:
            return family
    return None


def all_formats() -> "list[Format]":
    """Return every file format, the preferred one first."""
    formats = [item for _, item in _of_all("zoo_formats")]
    return sorted(formats, key=lambda f: (-f.priority, f.name))


def format_named(name: str) -> "Format":
    """Return a file format by name.

    Raises:
        UsageError: no plugin provides it.
    """
    for each in all_formats():
        if each.name == name:
            return each
    raise UsageError(f"no installed plugin knows the format {name}", "see `zoo plugins`")


def registry_files() -> list[tuple[Found, Path]]:
    """Return the registry files that plugins bring, each with its plugin."""
    return [(installed()[name], path) for name, path in _of_all("zoo_checkpoints")]


def hooks_of(name: str) -> list[str]:
    """Return the names of the hooks that a loaded plugin implements."""
    callers: Iterable[Any] = _manager().get_hookcallers(load(name)) or ()
    return sorted(caller.name for caller in callers)
