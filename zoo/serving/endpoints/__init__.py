"""The HTTP interfaces: a file each. An endpoint is a declaration, from which OpenAPI derives."""

from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from zoo.serving.errors import InvalidRequest, ModelFailure, RequestError

if TYPE_CHECKING:
    from zoo.serving.exchange import Exchange

Events = AsyncIterator[bytes]


class Record(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Base class of the bodies of requests. An unknown field is an error."""


@dataclass(frozen=True)
class Interface:
    """A family of endpoints with one format of errors.

    Attributes:
        name: its name, for documentation.
        error_body: returns the JSON value of an error.
        invalid_status: HTTP status of a request that is not valid.
        failure_status: HTTP status of a request that the model fails on.
    """

    name: str
    error_body: Callable[[RequestError], Any]
    invalid_status: int = 400
    failure_status: int = 500

    def status(self, error: RequestError) -> int:
        """Return the HTTP status of an error."""
        if isinstance(error, InvalidRequest):
            return self.invalid_status
        if isinstance(error, ModelFailure):
            return self.failure_status
        return error.status


@dataclass(frozen=True)
class Endpoint:
    """An endpoint.

    Attributes:
        path: path of the URL; ``{name}`` is a parameter.
        summary: one line for documentation.
        interface: the interface, for errors.
        answer: returns the answer: a value that becomes JSON, ``bytes`` of JSON, or an iterator
            over server-sent events.
        request: type of the body; ``None`` for ``GET``.
        response: type of the answer, for documentation.
    """

    path: str
    summary: str
    interface: Interface
    answer: "Callable[[Exchange, Any], Coroutine[Any, Any, Any]]"
    request: type[Any] | None = None
    response: Any = Any

    @property
    def method(self) -> Literal["GET", "POST"]:
        """The method of HTTP."""
        return "GET" if self.request is None else "POST"
