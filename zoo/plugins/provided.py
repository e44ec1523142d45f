"""Families, file formats, loggers and registry files that plugins provide."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from zoo.errors import PluginError, UsageError, did_you_mean
from zoo.plugins.discovery import LOGGERS, PluginInfo, installed
from zoo.plugins.loading import broken, load, manager, warn_or_raise

if TYPE_CHECKING:
    from zoo.families.base import Family
    from zoo.families.distillation import DistillationRecipe
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
        if not _is_valid(hook, item):
            raise broken(installed()[name], f"{hook} returned a {type(item).__name__}")
    return values


def _is_valid(hook: str, item: object) -> bool:
    """Return ``True`` if a value of a hook has the type that the hook's specification names."""
    from zoo.families.base import Family
    from zoo.families.distillation import DistillationRecipe
    from zoo.io.tensors.formats import Format
    from zoo.plugins.logger import Logger

    if hook == "zoo_loggers":
        return isinstance(item, type) and issubclass(item, Logger) and bool(item.name)
    types: dict[str, type] = {
        "zoo_families": Family,
        "zoo_formats": Format,
        "zoo_recipes": DistillationRecipe,
    }
    return isinstance(item, types.get(hook, Path))


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
    return _by_name("zoo_families", "family")


def _by_name(hook: str, noun: str) -> dict[str, Any]:
    """Return name -> value, for every value of every plugin's hook.

    Raises:
        PluginError: two plugins provide values of one name.
    """
    values: dict[str, Any] = {}
    plugin_names: dict[str, str] = {}
    for plugin, item in _of_all(hook):
        if item.name in values:
            first, second = installed()[plugin_names[item.name]], installed()[plugin]
            raise PluginError(
                f"two plugins provide the {noun} {item.name}: {first.name} from "
                f"{first.distribution} and {second.name} from {second.distribution}",
                "uninstall one of them",
            )
        values[item.name], plugin_names[item.name] = item, plugin
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


def get_logger(name: str) -> "type[Logger]":
    """Return the class of a logger by name. Imports only the built-in ones and the plugin ``name``.

    Other plugins are imported if these do not provide it.

    Raises:
        UsageError: no plugin provides it.
        PluginError: its plugin is broken, or two plugins provide it.
    """
    if LOGGERS not in installed():  # an editable installation of an earlier commit
        raise PluginError(
            "the built-in loggers are not installed",
            "repeat `pip install --no-deps -e .`, which declares new plugins",
        )
    for plugin in (LOGGERS, name):
        for logger in _implementations(plugin, "zoo_loggers") if plugin in installed() else ():
            if logger.name == name:
                return logger  # type: ignore[no-any-return]
    loggers = _by_name("zoo_loggers", "logger")
    if name not in loggers:
        raise UsageError(
            f"no logger is called {name!r}",
            did_you_mean(name, list(loggers)) or f"available: {', '.join(sorted(loggers))}",
        )
    return loggers[name]  # type: ignore[no-any-return]


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


def recipes_of_plugins() -> "dict[str, DistillationRecipe]":
    """Return the distillation recipes of all plugins by name.

    Raises:
        PluginError: two plugins provide recipes of one name.
    """
    return _by_name("zoo_recipes", "distillation recipe")
