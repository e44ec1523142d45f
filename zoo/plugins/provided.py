"""What plugins provide: families, file formats and rows of the registry."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from zoo.errors import PluginError, UsageError, did_you_mean
from zoo.plugins.discovery import PluginInfo, installed
from zoo.plugins.loading import broken, load, manager, warn_or_raise

if TYPE_CHECKING:
    from zoo.families.base import Family
    from zoo.io.tensors.formats import Format


def _implementations(name: str, hook: str) -> list[Any]:
    """Return what one plugin's hook returns."""
    load(name)
    hooks = manager()
    call = hooks.subset_hook_caller(hook, [p for n, p in hooks.list_name_plugin() if n != name])
    try:
        found = [item for items in call() for item in items]
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # whatever a third party's hook raises
        raise broken(installed()[name], f"{hook}: {type(error).__name__}: {error}") from error
    for item in found:
        if not isinstance(item, _returned(hook)):
            raise broken(installed()[name], f"{hook} returned a {type(item).__name__}")
    return found


def _returned(hook: str) -> type:
    """Return what a hook's values must be instances of."""
    from zoo.families.base import Family
    from zoo.io.tensors.formats import Format

    kinds: dict[str, type] = {"zoo_families": Family, "zoo_formats": Format}
    return kinds.get(hook, Path)


def families_of(name: str) -> "list[Family]":
    """Return the families that one plugin provides.

    Raises:
        PluginError: it is broken.
    """
    return _implementations(name, "zoo_families")


def _of_all(hook: str) -> list[tuple[str, Any]]:
    """Return (plugin name, value) for every value that every plugin's hook returns."""
    found = []
    for name in installed():
        try:
            found += [(name, item) for item in _implementations(name, hook)]
        except PluginError as error:
            warn_or_raise(error)
    return found


def get_family(name: str, mentioned_in: str = "") -> "Family":
    """Return a family by name, importing its plugin alone where the entry point has its name.

    Args:
        name: name of the family.
        mentioned_in: file that the name is from, for the message.

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
        for family in _implementations(model_type, "zoo_families"):
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


def registry_files() -> list[tuple[PluginInfo, Path]]:
    """Return the registry files that plugins bring, each with its plugin."""
    return [(installed()[name], path) for name, path in _of_all("zoo_checkpoints")]
