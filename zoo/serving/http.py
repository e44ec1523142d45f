"""What a request may be: its origin, its key and its body."""

import asyncio
import contextlib
import hmac
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
from starlette.responses import JSONResponse

from zoo.errors import VerificationError
from zoo.io.json import parse_json
from zoo.overrides import override
from zoo.serving.errors import (
    Forbidden,
    InvalidRequest,
    RequestTimeout,
    TooLarge,
    Unauthorized,
    UnsupportedMediaType,
)
from zoo.serving.protocol import BODY_ARRIVED

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.types import Receive, Scope, Send

    from zoo.serving.admission import Reservation

Record = TypeVar("Record")

LOOPBACK_NAMES = ("localhost", "127.0.0.1", "[::1]", "::1")

# The rest of a body is discarded until it ends, the client pauses, or this time is over.
DISCARD_SECONDS = 5.0
PAUSE_SECONDS = 1.0


def require_key(request: "Request", keys: Sequence[str]) -> None:
    """Check the API key of a request, ``Authorization: Bearer KEY``, in constant time.

    Raises:
        Unauthorized: there is none, it is wrong, or there are two.
    """
    if not keys:
        return
    headers = request.headers.getlist("authorization")
    if not headers:
        raise Unauthorized("an API key is needed: Authorization: Bearer KEY")
    if len(headers) > 1:
        raise Unauthorized("two API keys were given; give one")
    scheme, _, given_key = headers[0].partition(" ")
    accepted = False
    for key in keys:
        accepted |= hmac.compare_digest(given_key.strip().encode(), key.encode())
    if scheme.lower() != "bearer" or not accepted:
        raise Unauthorized("the API key is wrong")


def require_local_host(request: "Request") -> None:
    """Check that a request without a key names this machine as its host.

    A page in a browser can make the browser send requests to loopback under the name of the
    page's own host.

    Raises:
        Forbidden: the host is another name.
    """
    host = request.headers.get("host", "")
    name = host
    if not host.startswith("[") or "]:" in host:
        name = host.rpartition(":")[0] or host
    if name.lower() not in LOOPBACK_NAMES:
        raise Forbidden("the Host header does not name this machine; start with --api-key")


async def read_body(
    request: "Request", reservation: "Reservation", *, max_bytes: int, seconds: float
) -> bytes:
    """Read the body of a request.

    Args:
        request: the request.
        reservation: counts the bytes.
        max_bytes: largest size.
        seconds: time in which the body has to arrive.

    Raises:
        UnsupportedMediaType: it is not JSON by its content type, which a page in a browser cannot
            set for another host.
        TooLarge: it is too large.
        RequestTimeout: it arrives too slowly.
    """
    content_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if content_type != "application/json":
        raise UnsupportedMediaType("the body is JSON; add Content-Type: application/json")
    announced = request.headers.get("content-length", "0")
    if announced.isascii() and announced.isdigit() and int(announced) > max_bytes:
        raise TooLarge(
            f"the body has {int(announced):,} bytes, and at most {max_bytes:,} are read",
            ends_connection=True,
        )
    body = bytearray()
    try:
        async with asyncio.timeout(None if BODY_ARRIVED in request.scope else seconds):
            async for part in request.stream():
                reservation.add(len(part))
                body += part
                if len(body) > max_bytes:
                    raise TooLarge(
                        f"the body has over {max_bytes:,} bytes, which are not read",
                        ends_connection=True,
                    )
    except TimeoutError:
        raise RequestTimeout(
            f"the body did not arrive within {seconds:g} s", ends_connection=True
        ) from None
    return bytes(body)


class ClosingResponse(JSONResponse):
    """A response to a request whose body was not read, after which the connection is closed.

    Closing a connection on which bytes arrive resets it, and the client would lose the response.
    What arrives within a few seconds is therefore read and discarded before.
    """

    @override
    async def __call__(self, scope: "Scope", receive: "Receive", send: "Send") -> None:
        self.headers["Connection"] = "close"
        await send(
            {
                "type": "http.response.start",
                "status": self.status_code,
                "headers": self.raw_headers,
            }
        )
        await send({"type": "http.response.body", "body": self.body, "more_body": True})
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(DISCARD_SECONDS):
                await _discard_body(receive)
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _discard_body(receive: "Receive") -> None:
    """Read the rest of a body; raises ``TimeoutError`` if the client pauses."""
    has_more = True
    while has_more:
        async with asyncio.timeout(PAUSE_SECONDS):
            message = await receive()
        has_more = message.get("more_body", False)


def parse_body(body: bytes, record_type: type[Record]) -> Record:
    """Return the record of a request from its JSON.

    Raises:
        InvalidRequest: it is not JSON, a field is unknown, missing or of another type.
    """
    try:
        value = parse_json(body, "the body", unique_keys=True)
    except VerificationError as error:
        raise InvalidRequest(error.what) from None  # The hint is for files.
    return convert_value(value, record_type)


def convert_value(value: Any, record_type: type[Record]) -> Record:
    """Return the record of a request from the value of its JSON.

    Raises:
        InvalidRequest: a field is unknown, missing or of another type.
    """
    try:
        return msgspec.convert(value, record_type)
    except msgspec.ValidationError as error:
        message = str(error)
        parameter = None
        if "`$." in message:
            parameter = message.partition("`$.")[2].partition("`")[0]
        elif "field `" in message:
            parameter = message.partition("field `")[2].partition("`")[0]
        raise InvalidRequest(message.replace("$.", ""), parameter=parameter) from None
