"""Old names of methods and arguments, which are accepted until the next minor version.

Plugins may define and call methods by them; functions of the Python API take arguments by them.
"""

import functools
import warnings
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, ParamSpec, TypeVar

Parameters = ParamSpec("Parameters")
Returned = TypeVar("Returned")


class RenamedMethods:
    """Base class of classes for plugins whose methods were renamed."""

    # Of every subclass, a method that is defined by one name also has the other, so that
    # ``super()`` reaches it by both. Uses of an old name give a ``DeprecationWarning``.

    renamed_methods: ClassVar[Mapping[str, str]] = {}  # old name -> new name

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


def renamed_arguments(
    **former: str,
) -> Callable[[Callable[Parameters, Returned]], Callable[Parameters, Returned]]:
    """Return a decorator of a function that takes arguments by old name -> new name."""
    # Uses of an old name give a ``FutureWarning``, which users see by default. The signature has
    # the new names only.

    def decorate(function: Callable[Parameters, Returned]) -> Callable[Parameters, Returned]:
        @functools.wraps(function)
        def call(*args: Parameters.args, **options: Parameters.kwargs) -> Returned:
            for old in former.keys() & options.keys():
                warn_of_argument(old, former[old])
                if former[old] in options:
                    name = function.__name__
                    raise TypeError(f"{name}() got {former[old]} twice, once by its old name {old}")
                options[former[old]] = options.pop(old)
            return function(*args, **options)

        return call

    return decorate


def warn_of_argument(old: str, new: str, *, calls: int = 2) -> None:
    """Warn that an argument has an old name, at the user's code, ``calls`` calls above."""
    message = f"{old} is now called {new}, its only name in the next release"
    warnings.warn(message, FutureWarning, stacklevel=calls + 1)


def _message(old: str, new: str) -> str:
    return f"the method {old} is now called {new}"
