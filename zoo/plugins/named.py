"""Objectives, tasks and commands of plugins, which entry points name.

The group of the entry points is that of plugins and the kind, such as ``zoo.api1.tasks``; the name
is the name on the command line, the value ``module:attribute``. So they are listed without
importing a plugin, and only the one that is used is imported. They belong to the plugins of their
distribution: where these are disabled, or have the names of others' plugins, they are not there.
"""

import functools
import importlib
import os
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from zoo.errors import PluginError, UsageError, did_you_mean
from zoo.io.named import import_named
from zoo.plugins.entry_points import SETTINGS, contested_plugins, third_party_entry_points

if TYPE_CHECKING:
    from zoo.plugins.discovery import PluginInfo

# what distributions name by entry points -> noun
KINDS = {"objectives": "objective", "tasks": "task", "commands": "command"}
T = TypeVar("T")


class NamedObject(NamedTuple):
    """An objective, a task or a command of a plugin, not necessarily imported.

    Attributes:
        kind: one of ``KINDS``.
        name: its name.
        target: ``module:attribute``.
        plugin_name: name of the plugin that it belongs to, the first of its distribution.
        origin: the distribution and its version.
    """

    kind: str
    name: str
    target: str
    plugin_name: str
    origin: str

    @property
    def noun(self) -> str:
        """Noun for messages."""
        return KINDS[self.kind]

    @property
    def plugin(self) -> "PluginInfo":
        """The plugin that it belongs to, with the module of the object."""
        from zoo.plugins.discovery import PluginInfo

        distribution, _, version = self.origin.partition(" ")
        return PluginInfo(self.plugin_name, distribution, version, self.target)


@functools.cache
def named_objects(kind: str) -> tuple[NamedObject, ...]:
    """Return what enabled plugins have of a kind, without importing them.

    Raises:
        UsageError, VerificationError: the file of enabled plugins cannot be read, or is malformed.
    """
    declared = [points for points in third_party_entry_points() if points.of(kind)]
    if not declared:
        return ()
    allows, contested = _allowance(), contested_plugins()
    return tuple(
        NamedObject(kind, name, target, plugins[0], f"{points.distribution} {points.version}")
        for points in declared
        if (plugins := sorted(filter(allows, points.of().keys() - contested)))
        for name, target in points.of(kind).items()
    )


def _allowance() -> Callable[[str], bool]:
    """Return the function that tells whether a plugin may be loaded, by its name."""
    requested = os.environ.get("ZOO_PLUGINS")
    if requested is not None:
        return {name.strip() for name in requested.split(",")}.__contains__
    from zoo.io.paths import home

    if not os.path.lexists(home() / SETTINGS):
        return lambda name: True
    from zoo.plugins.settings import read_settings

    return read_settings().allows


def usable(kind: str, built_in: Collection[str]) -> dict[str, NamedObject]:
    """Return name -> object that may be used.

    What is built in precedes what has the same name in a plugin; of several plugins' objects with
    one name there is none. Both are reported.

    Raises:
        PluginError: there is such a conflict, and ``ZOO_STRICT_PLUGINS=1``.
    """
    objects = {}
    for name, rivals in _by_name(kind).items():
        if error := _conflict(rivals, built_in):
            from zoo.plugins.loading import warn_or_raise

            warn_or_raise(error)
        else:
            objects[name] = rivals[0]
    return objects


def conflicts(kind: str, built_in: Collection[str]) -> Iterator[tuple[str, PluginError]]:
    """Yield the name of each plugin with an object whose name is taken, and the error."""
    for rivals in _by_name(kind).values():
        if error := _conflict(rivals, built_in):
            yield from ((named.plugin_name, error) for named in rivals)


def find_object(kind: str, name: str, built_in: Collection[str]) -> NamedObject:
    """Return the object of a plugin with a name.

    Raises:
        UsageError: no plugin has it; the nearest names are given.
        PluginError: several distributions have it.
    """
    rivals = _by_name(kind).get(name, [])
    if rivals and (error := _conflict(rivals, ())):
        raise error
    if rivals:
        return rivals[0]
    names = [*built_in, *_by_name(kind)]
    hint = did_you_mean(name, names) or f"there are {', '.join(sorted(names))}"
    raise UsageError(f"no {KINDS[kind]} is called {name!r}", hint)


def import_class(kind: str, name: str, built_in: Mapping[str, str], base: type[Any]) -> Any:
    """Return a built-in class, or that of a plugin, by name.

    Args:
        kind: one of ``KINDS``.
        name: name of the class on the command line.
        built_in: name -> ``module:attribute``.
        base: base class of all of the kind.

    Raises:
        UsageError: there is none; the nearest names are given.
        PluginError: several distributions have it, or the plugin is broken.
    """
    if name in built_in:
        if is_named(kind, name):
            usable(kind, built_in)  # a warning
        return import_named(built_in, name, KINDS[kind])
    named = find_object(kind, name, built_in)
    value = import_object(named)
    if not (isinstance(value, type) and issubclass(value, base)):
        raise broken_object(named, f"{named.target} is no {base.__name__}")
    if getattr(value, "name", None) != name:
        raise broken_object(named, f"{named.target} has another name")
    return value


def import_instance(named: NamedObject, kind: type[T]) -> T:
    """Import an object of a plugin that is an instance of a class.

    Raises:
        PluginError: the import fails, or the object is of another class.
    """
    value = import_object(named)
    if not isinstance(value, kind):
        raise broken_object(named, f"{named.target} is no {kind.__name__}")
    return value


def import_object(named: NamedObject) -> Any:
    """Import an object of a plugin.

    Raises:
        PluginError: the import fails.
    """
    from zoo.plugins.loading import guarded

    module, _, attribute = named.target.partition(":")
    try:
        with guarded(named.plugin):
            return getattr(importlib.import_module(module), attribute)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # a third-party module can raise any exception
        raise broken_object(named, f"{type(error).__name__}: {error}") from error


def broken_object(named: NamedObject, reason: str) -> PluginError:
    """Return the error for an object that is not what its kind has to be."""
    from zoo.plugins.loading import broken

    return broken(named.plugin, f"{named.noun} {named.name}: {reason}")


def is_named(kind: str, name: str) -> bool:
    """Return whether any plugin has an object with a name."""
    return name in _by_name(kind)


def _by_name(kind: str) -> dict[str, list[NamedObject]]:
    objects: dict[str, list[NamedObject]] = {}
    for named in named_objects(kind):
        objects.setdefault(named.name, []).append(named)
    return objects


def _conflict(rivals: list[NamedObject], built_in: Collection[str]) -> PluginError | None:
    """Return the error for names that are taken."""
    last = rivals[-1]
    hint = f"uninstall {last.origin.partition(' ')[0]}, or `zoo plugins disable {last.plugin_name}`"
    if last.name in built_in:
        what = f"plugin {last.plugin_name} (from {last.origin}) provides"
        return PluginError(f"{what} the {last.noun} {last.name}, which is built in", hint)
    if len(rivals) == 1:
        return None
    from_each = " and ".join(f"{r.plugin_name} from {r.origin}" for r in rivals)
    return PluginError(
        f"{len(rivals)} plugins provide the {last.noun} {last.name}: {from_each}", hint
    )
