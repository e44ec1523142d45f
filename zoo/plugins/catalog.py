"""Classes that are selected by name: those of zoo, and those that plugins add.

Adapter methods, optimizers, export targets and losses are declared in the same way. Each is a class
with a name. A built-in one is a line in a table, a plugin's an entry point of ``zoo.api1.KIND``.
"""

from collections.abc import Mapping
from importlib import import_module
from typing import Generic, TypeVar

from zoo.plugins.entry_point_objects import KINDS, import_class, is_named, usable

T = TypeVar("T")


class Catalog(Generic[T]):
    """The classes of one kind, by name.

    Names are listed without importing a class. The class that is used is imported.

    Attributes:
        kind: last part of the group of entry points, such as ``adapters``.
        base: ``module:class`` of the base class.
        built_in: name -> ``module:class`` of the classes that zoo brings.
    """

    def __init__(self, kind: str, base: str, built_in: Mapping[str, str]) -> None:
        self.kind = kind
        self.base = base
        self.built_in = built_in

    @property
    def noun(self) -> str:
        """Noun for messages, such as ``adapter``."""
        return KINDS[self.kind]

    def names(self) -> tuple[str, ...]:
        """Return the names of all classes, zoo's first."""
        return (*self.built_in, *usable(self.kind, self.built_in))

    def find(self, name: str) -> type[T]:
        """Return the class with a name.

        Raises:
            UsageError: there is none; the message has the nearest name.
            PluginError: a plugin's class cannot be imported, or is not of this kind.
        """
        found: type[T] = import_class(self.kind, name, self.built_in, self.base_class())
        return found

    def base_class(self) -> type[T]:
        """Import the base class."""
        module, _, attribute = self.base.partition(":")
        base: type[T] = getattr(import_module(module), attribute)
        return base

    def from_plugin(self, name: str) -> bool:
        """Return whether a class is a plugin's."""
        return name not in self.built_in and is_named(self.kind, name)
