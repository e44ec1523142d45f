"""Families, file formats and registry files that plugins provide."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from zoo.errors import PluginError, UsageError, did_you_mean
from zoo.plugins.discovery import PluginInfo, installed
from zoo.plugins.loading import broken, load, manager, warn_or_raise

if TYPE_CHECKING:
    from zoo.families.base import Family
    from zoo.io.tensors.formats import Format
    from zoo.plugins.logger import Logger


def _implementations(name: str, hook: str) -> list[Any]:
    """Return the values of a hook of one plugin."""
    load(name)
    hooks = manager()
    call = hooks.subset_hook_caller(hook, [p for n, p in hooks.list_name_plugin() if n != name])
    try:
        values = [item for items in call() for item in items]
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # a third-party hook can raise any exception
        raise broken(installed()[name], f"{hook}: {type(error).__name__}: {error}") from error
    for item in values:
        if not isinstance(item, _returned(hook)):
            raise broken(installed()[name], f"{hook} returned a {type(item).__name__}")
    return values


def _returned(hook: str) -> type:
    """Return the type of a hook's values."""
    from zoo.families.base import Family
    from zoo.io.tensors.formats import Format

    kinds: dict[str, type] = {"zoo_families": Family, "zoo_formats": Format, "zoo_loggers": type}
    return kinds.get(hook, Path)


def families_of(name: str) -> "list[Family]":
    """Return the families of one plugin.

    Raises:
        PluginError: the plugin is broken.
    """
    return _implementations(name, "zoo_families")


def _of_all(hook: str) -> list[tuple[str, Any]]:
    """Return (plugin name, value) for every value that every plugin's hook returns."""
    values = []
    for name in installed():
        try:
            values += [(name, item) for item in _implementations(name, hook)]
        except PluginError as error:
            warn_or_raise(error)
    return values


def get_family(name: str, mentioned_in: str = "") -> "Family":
    """Return a family by name. Imports only its plugin if the entry point has the family's name.

    Args:
        name: name of the family.
        mentioned_in: file that has the name, for the message.

    Raises:
        UsageError: no plugin provides it.
        PluginError: its plugin is broken, or two plugins provide it.
    """
    if name in installed():
        for family in _implementations(name, "zoo_families"):
            if family.name == name:
                return family  # type: ignore[no-any-return]
    families = all_families()
    if name not in families:
        place = f"{mentioned_in}: " if mentioned_in else ""
        raise UsageError(
            f"{place}no family is called {name!r}",
            did_you_mean(name, list(families)) or f"available: {', '.join(sorted(families))}",
        )
    return families[name]


def all_families() -> "dict[str, Family]":
    """Return every family by name.

    Raises:
        PluginError: two plugins provide families of one name.
    """
    values: dict[str, Family] = {}
    plugin_names: dict[str, str] = {}
    for plugin, family in _of_all("zoo_families"):
        if family.name in values:
            first, second = installed()[plugin_names[family.name]], installed()[plugin]
            raise PluginError(
                f"two plugins provide the family {family.name}: {first.name} from "
                f"{first.distribution} and {second.name} from {second.distribution}",
                "uninstall one of them",
            )
        values[family.name], plugin_names[family.name] = family, plugin
    return values


def family_of_model_type(model_type: str) -> "Family | None":
    """Return the family with a Hub ``model_type``, or ``None``."""
    if model_type in installed():
        for family in _implementations(model_type, "zoo_families"):
            if model_type in family.model_types:
                return family  # type: ignore[no-any-return]
    for family in all_families().values():
        if model_type in family.model_types:
            return family
    return None


def all_formats() -> "list[Format]":
    """Return all file formats, by descending priority."""
    formats = [item for _, item in _of_all("zoo_formats")]
    return sorted(formats, key=lambda f: (-f.priority, f.name))


def all_loggers() -> "list[type[Logger]]":
    """Return the classes of loggers of training runs that plugins provide."""
    return [item for _, item in _of_all("zoo_loggers")]


def format_named(name: str) -> "Format":
    """Return a file format by name.

    Raises:
        UsageError: no plugin provides it.
    """
    for file_format in all_formats():
        if file_format.name == name:
            return file_format
    raise UsageError(f"no installed plugin provides the format {name}", "see `zoo plugins`")


def registry_files() -> list[tuple[PluginInfo, Path]]:
    """Return the registry files of plugins, each with its plugin."""
    return [(installed()[name], path) for name, path in _of_all("zoo_checkpoints")]
