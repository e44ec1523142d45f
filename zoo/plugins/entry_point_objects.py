"""Objects of plugins that are named by entry points: tasks, objectives, losses, and others."""

import functools
from collections.abc import Collection, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from zoo.errors import PluginError, UsageError, did_you_mean
from zoo.io.lazy_import import lazy_import
from zoo.plugins.enabled import may_be_loaded
from zoo.plugins.entry_points import (
    DISTRIBUTION,
    GROUP,
    MODEL_TYPES,
    contested_plugins,
    installed_entry_points,
)

if TYPE_CHECKING:
    from zoo.plugins.discovery import PluginInfo

# Kind of object, which is the end of its group of entry points -> noun for messages.
KINDS = {
    "objectives": "objective",
    "tasks": "task",
    "metrics": "metric",
    "suites": "suite",
    "commands": "command",
    "targets": "export target",
    "embedding_losses": "embedding loss",
    "distillation_losses": "distillation loss",
    "adapters": "adapter",
    "optimizers": "optimizer",
    "cleaning_rules": "cleaning rule",
    "probes": "probing task",
}
T = TypeVar("T")


class NamedObject(NamedTuple):
    """An object of a plugin that an entry point names, not necessarily imported."""

    # The group of the entry point is the plugins' group and the kind, such as ``zoo.api1.tasks``.
    # The name is the name on the command line, the value ``module:attribute``. They are listed
    # without importing a plugin, and only the one that is used is imported. Each belongs to the
    # plugin of its distribution: if that is disabled, or has the name of another plugin, they are
    # left out.

    kind: str
    name: str
    target: str  # ``module:attribute``.
    plugin_name: str  # Name of the plugin that it belongs to, the first of its distribution.
    distribution: str
    version: str  # Version of the distribution.

    @property
    def noun(self) -> str:
        """Noun for messages."""
        return KINDS[self.kind]

    @property
    def origin(self) -> str:
        """Name and version of the distribution."""
        return f"{self.distribution} {self.version}"

    @property
    def plugin(self) -> "PluginInfo":
        """The plugin that it belongs to, with the module of the object."""
        from zoo.plugins.discovery import PluginInfo

        return PluginInfo(self.plugin_name, self.distribution, self.version, self.target)


@functools.cache
def named_objects(kind: str) -> tuple[NamedObject, ...]:
    """Return the objects of a kind in enabled plugins of third parties, without importing them."""
    points_of_plugins = []
    for points in installed_entry_points():
        if points.distribution != DISTRIBUTION and points.of(kind):
            points_of_plugins.append(points)
    if not points_of_plugins:
        return ()
    is_enabled = may_be_loaded()
    contested = contested_plugins()
    objects = []
    for points in points_of_plugins:
        uncontested = points.of().keys() - contested
        plugin_names = sorted(filter(is_enabled, uncontested))
        if not plugin_names:
            continue
        for name, target in points.of(kind).items():
            plugin_object = NamedObject(
                kind=kind,
                name=name,
                target=target,
                plugin_name=plugin_names[0],
                distribution=points.distribution,
                version=points.version,
            )
            objects.append(plugin_object)
    return tuple(objects)


def unread_entry_points() -> Iterator[str]:
    """Yield a line for each group of entry points of a third party that nothing reads."""
    groups = [GROUP, f"{GROUP}.{MODEL_TYPES}", *(f"{GROUP}.{kind}" for kind in KINDS)]
    for points in installed_entry_points():
        if points.distribution == DISTRIBUTION:
            continue
        origin = f"{points.distribution} {points.version}"
        for group in points.groups:
            if not group.startswith(f"{GROUP}."):
                continue
            names = ", ".join(points.groups[group])
            if group not in groups:
                remedy = did_you_mean(group, groups) or f"groups are {', '.join(groups)}"
                yield f"{origin}: nothing reads the entry points {group} ({names}); {remedy}"
            elif not points.of():
                yield (
                    f"{origin}: the entry points {group} ({names}) are not read, as the "
                    f"distribution declares no plugin; add one of {GROUP} with its module"
                )


def _by_name(kind: str) -> dict[str, list[NamedObject]]:
    objects: dict[str, list[NamedObject]] = {}
    for plugin_object in named_objects(kind):
        objects.setdefault(plugin_object.name, []).append(plugin_object)
    return objects


def is_named(kind: str, name: str) -> bool:
    """Return whether an enabled plugin has an object with a name."""
    return any(plugin_object.name == name for plugin_object in named_objects(kind))


def usable(kind: str, built_in: Collection[str]) -> dict[str, NamedObject]:
    """Return name -> object of a plugin that may be used.

    A built-in object takes precedence over a plugin's object of the same name, and a name that
    several plugins use is left out. Both are reported.
    """
    objects = {}
    for name, rivals in _by_name(kind).items():
        error = _conflict(rivals, built_in)
        if error is not None:
            from zoo.plugins.loading import warn_or_raise

            warn_or_raise(error)
        else:
            objects[name] = rivals[0]
    return objects


def conflicts(kind: str, built_in: Collection[str]) -> Iterator[tuple[str, PluginError]]:
    """Yield the name of each plugin with an object whose name is taken, and the error."""
    for rivals in _by_name(kind).values():
        error = _conflict(rivals, built_in)
        if error is None:
            continue
        for plugin_object in rivals:
            yield plugin_object.plugin_name, error


def find_object(kind: str, name: str, built_in: Collection[str]) -> NamedObject:
    """Return the object of a plugin with a name."""
    objects = _by_name(kind)
    rivals = objects.get(name)
    if rivals is not None:
        error = _conflict(rivals, ())
        if error is not None:
            raise error
        return rivals[0]
    names = [*built_in, *objects]
    hint = did_you_mean(name, names) or f"there are {', '.join(sorted(names))}"
    raise UsageError(f"no {KINDS[kind]} is called {name!r}", hint)


def import_class(kind: str, name: str, built_in: Mapping[str, str], base: type[Any]) -> Any:
    """Import a built-in class or a plugin's class by name, and check its base class."""
    if name in built_in:
        if is_named(kind, name):
            usable(kind, built_in)  # This warns.
        return lazy_import(built_in, name, KINDS[kind])
    plugin_object = find_object(kind, name, built_in)
    value = import_object(plugin_object)
    if not (isinstance(value, type) and issubclass(value, base)):
        reason = f"{plugin_object.target} is not a subclass of {base.__name__}"
        raise broken_object(plugin_object, reason)
    class_name = getattr(value, "name", None)
    if class_name != name:
        raise broken_name(plugin_object, class_name)
    return value


def import_instance(plugin_object: NamedObject, instance_type: type[T]) -> T:
    """Import an object of a plugin that is an instance of a class."""
    value = import_object(plugin_object)
    if not isinstance(value, instance_type):
        reason = f"{plugin_object.target} is not a {instance_type.__name__}"
        raise broken_object(plugin_object, reason)
    return value


def import_object(plugin_object: NamedObject) -> Any:
    """Import an object of a plugin."""
    from zoo.plugins.loading import import_target

    description = f"{plugin_object.noun} {plugin_object.name}"
    return import_target(plugin_object.plugin, plugin_object.target, description)


def broken_object(plugin_object: NamedObject, reason: str) -> PluginError:
    """Return the error for an object that is not what its group of entry points holds."""
    from zoo.plugins.loading import broken

    description = f"{plugin_object.noun} {plugin_object.name}"
    return broken(plugin_object.plugin, f"{description}: {reason}")


def broken_name(plugin_object: NamedObject, name: str | None) -> PluginError:
    """Return the error for an object whose name is not the one of its entry point."""
    reason = (
        f"the name of {plugin_object.target} is {name!r}, and that of its entry point "
        f"{plugin_object.name!r}"
    )
    return broken_object(plugin_object, reason)


def _conflict(rivals: list[NamedObject], built_in: Collection[str]) -> PluginError | None:
    """Return the error for a name that is taken, ``None`` if it is not."""
    last = rivals[-1]
    is_built_in = last.name in built_in
    if len(rivals) == 1 and not is_built_in:
        return None
    from zoo.plugins.discovery import contested, removal_hint

    if not is_built_in:
        return contested(last.noun, last.name, [rival.plugin for rival in rivals])
    return PluginError(
        f"plugin {last.plugin_name} (from {last.origin}) provides the {last.noun} {last.name}, "
        "which is built in",
        removal_hint(last.plugin),
    )
