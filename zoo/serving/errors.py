"""Errors of requests, with their HTTP status."""

from typing import ClassVar

from zoo.errors import NonFiniteError, UsageError, ZooError
from zoo.inference.processing.records import LongTextError


class RequestError(Exception):
    """A request that is not answered with a result.

    Args:
        message: one line for the client, without texts of the request.
        parameter: the field of the request that is wrong, if it is one.

    Attributes:
        status: the HTTP status.
        code: name of the reason, in the formats that have one.
        retry_after: seconds after which the client may try again.
        ends_connection: whether the connection is closed, since the body is not read.
    """

    status: ClassVar[int] = 400
    code: ClassVar[str] = "invalid_request"

    def __init__(
        self,
        message: str,
        *,
        parameter: str | None = None,
        retry_after: int | None = None,
        ends_connection: bool = False,
    ) -> None:
        super().__init__(message)
        self.ends_connection = ends_connection
        self.message = message
        self.parameter = parameter
        self.retry_after = retry_after


class InvalidRequest(RequestError):
    """JSON, a type or a value that is wrong."""


class Unauthorized(RequestError):
    """No API key, or a wrong one."""

    status = 401
    code = "invalid_api_key"


class Forbidden(RequestError):
    """A request that a page in a browser may have sent."""

    status = 403
    code = "forbidden"


class NotFound(RequestError):
    """A path or a model that does not exist."""

    status = 404
    code = "not_found"


class MethodNotAllowed(RequestError):
    """A path that has another method."""

    status = 405
    code = "method_not_allowed"


class RequestTimeout(RequestError):
    """A body that arrives too slowly."""

    status = 408
    code = "timeout"


class TooLarge(RequestError):
    """A body, a text or a number of texts that is over a limit."""

    status = 413
    code = "too_large"


class UnsupportedMediaType(RequestError):
    """A body that is not JSON by its content type."""

    status = 415
    code = "unsupported_media_type"


class Overloaded(RequestError):
    """More waits than fits into memory."""

    status = 429
    code = "overloaded"


class ModelFailure(RequestError):
    """An exception in the model."""

    status = 500
    code = "model_failure"


class Unavailable(RequestError):
    """A server that is ending, or whose engine has stopped."""

    status = 503
    code = "unavailable"


def request_error(error: BaseException) -> RequestError:
    """Return the error of a request for an exception while it was answered."""
    if isinstance(error, RequestError):
        return error
    if isinstance(error, NonFiniteError):
        return ModelFailure(error.what)
    if isinstance(error, LongTextError):
        return TooLarge(str(error))
    if isinstance(error, UsageError):
        return InvalidRequest(str(error))
    if isinstance(error, ZooError):
        return ModelFailure(str(error))
    # The message of another exception may have texts of the request in it.
    return ModelFailure(f"the model failed with {type(error).__name__}")
