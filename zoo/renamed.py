"""Old names of methods, by which plugins may define and call them until the next minor version."""

import functools
import warnings
from collections.abc import Callable, Mapping
from typing import Any, ClassVar


class RenamedMethods:
    """Base class of classes for plugins whose methods were renamed.

    Of every subclass, a method that is defined by one name also has the other, so that ``super()``
    reaches it by both. Uses of an old name give a ``DeprecationWarning``.

    Attributes:
        renamed_methods: old name -> new name.
    """

    renamed_methods: ClassVar[Mapping[str, str]] = {}

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        own = vars(cls)
        for old, new in cls.renamed_methods.items():
            if new in own and old not in own and not isinstance(own[new], int | str):
                setattr(cls, old, _deprecated(own[new], old, new))
            elif old in own and new not in own:
                where = f"{cls.__module__}.{cls.__qualname__}"
                warnings.warn(f"{where}: {_message(old, new)}", DeprecationWarning, stacklevel=3)
                setattr(cls, new, own[old])


def _deprecated(method: Callable[..., Any], old: str, new: str) -> Callable[..., Any]:
    @functools.wraps(method)
    def call(*args: Any, **options: Any) -> Any:
        warnings.warn(_message(old, new), DeprecationWarning, stacklevel=2)
        return method(*args, **options)

    return call


def _message(old: str, new: str) -> str:
    return f"the method {old} is now called {new}"
