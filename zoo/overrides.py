"""``override``, with which type checkers check that a base class has the method."""

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from typing_extensions import override  # type checkers bundle its stubs; it is not installed
elif sys.version_info >= (3, 12):
    from typing import override
else:
    Method = TypeVar("Method", bound=Callable[..., Any])

    def override(method: Method) -> Method:
        """Mark a method that overrides one of a base class; ``typing.override`` from Python 3.12.

        Goes below ``@property``, ``@classmethod`` and ``@staticmethod``. The method needs no
        docstring: the base class's applies.

        Args:
            method: the method.

        Returns:
            The same method.
        """
        return method


__all__ = ["override"]
