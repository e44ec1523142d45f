"""Limits on the responses that huggingface_hub reads, by hooks in its HTTP client."""

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import httpx2
from huggingface_hub import set_client_factory
from huggingface_hub.utils import _http
from huggingface_hub.utils import logging as client_logging

from zoo.errors import SourceError
from zoo.hub.errors import HubRequest, error_of_status, map_errors
from zoo.io.limits import HUB_SLOW_SECONDS, MAX_HUB_MESSAGE_BYTES, MIN_HUB_RATE
from zoo.io.retries import TransientError
from zoo.overrides import override

CALL: "ContextVar[HubCall | None]" = ContextVar("zoo.hub.client.CALL", default=None)
# the first two show warnings and switch to hf_xet; the others no longer fit a decompressed body
DROPPED_HEADERS = ("x-hf-warning", "x-xet-hash", "content-encoding", "content-length")
_INSTALLING = threading.Lock()


class HubCall:
    """Context of one call of huggingface_hub, with limits on the responses."""

    # huggingface_hub reads the body of any response to its end, waits for as long as a server
    # requests, stores a file under the name in the server's headers, and switches to another
    # client, hf_xet, if a server offers it. The hooks limit and check the responses to calls of
    # this package only.
    #
    # A factory of clients adds them, because huggingface_hub replaces its client after some errors.
    # Its public API sets a factory but does not return the one that is set, so one attribute of the
    # private module ``_http`` is read, to keep a program's factory with its proxies or
    # certificates.

    def __init__(self, request: HubRequest, limit: int) -> None:
        self.request = request
        self.limit = limit

    @contextlib.contextmanager
    def active(self) -> Iterator[None]:
        """Apply the limits to the requests of the block, and map its errors."""
        # huggingface_hub creates new clients after some errors. A factory that the program set, for
        # proxies or certificates, is wrapped
        with _INSTALLING:
            factory: Any = _http._GLOBAL_CLIENT_FACTORY
            if not isinstance(factory, _HookedFactory):  # the program may set its own at any time
                set_client_factory(_HookedFactory(factory))
        token = CALL.set(self)
        try:
            with map_errors(self.request), quiet():
                yield
        finally:
            CALL.reset(token)

    def on_request(self, request: httpx2.Request) -> None:
        """Change a request before it is sent."""
        # A compressed response has a different length and cannot be resumed.
        request.headers["Accept-Encoding"] = "identity"

    def on_response(self, response: httpx2.Response) -> None:
        """Check the status and the headers of a response, and wrap its body."""
        original = httpx2.Response(
            response.status_code,
            headers=response.headers,
            stream=response.stream,
            request=response.request,
        )
        compressed = response.headers.get("content-encoding", "identity") != "identity"
        for name in DROPPED_HEADERS if compressed else DROPPED_HEADERS[:2]:
            response.headers.pop(name, None)
        chunks = self._steady(original.iter_bytes())
        useful = response.status_code < 300
        response.stream = _Body(
            self.body(response, chunks) if useful else _beginning(chunks), original
        )
        if response.status_code >= 400:
            response.read()
            raise error_of_status(response, self.request)

    def body(self, response: httpx2.Response, chunks: Iterator[bytes]) -> Iterator[bytes]:
        """Yield the body of a successful response, up to the limit."""
        received = 0
        for chunk in chunks:
            received += len(chunk)
            if received > self.limit:
                raise SourceError(
                    f"the response for {self.request} is longer than {self.limit:,} bytes",
                    "check $HF_ENDPOINT",
                )
            yield chunk

    def _steady(self, chunks: Iterator[bytes]) -> Iterator[bytes]:
        """Yield chunks; raise an error if they arrive too slowly."""
        begin = time.monotonic()
        received = 0
        with map_errors(self.request):
            for chunk in chunks:
                received += len(chunk)
                seconds = time.monotonic() - begin
                if seconds > HUB_SLOW_SECONDS and received < seconds * MIN_HUB_RATE:
                    raise TransientError(
                        f"{received:,} bytes for {self.request} came in {seconds:.0f} s",
                        "try again later: the download is resumed",
                    )
                yield chunk


class _Body(httpx2.SyncByteStream):
    """Body of a response, replaced by other chunks."""

    def __init__(self, chunks: Iterator[bytes], original: httpx2.Response) -> None:
        self._chunks = chunks
        self._original = original

    @override
    def __iter__(self) -> Iterator[bytes]:
        yield from self._chunks

    @override
    def close(self) -> None:
        self._original.close()


def _beginning(chunks: Iterator[bytes]) -> Iterator[bytes]:
    """Yield the first bytes of the body of an error or a redirect."""
    received = 0
    for chunk in chunks:
        yield chunk[: MAX_HUB_MESSAGE_BYTES - received]
        received += len(chunk)
        if received >= MAX_HUB_MESSAGE_BYTES:
            return


@dataclass(frozen=True)
class _HookedFactory:
    """Factory of HTTP clients that adds the hooks to the clients of another factory."""

    factory: Callable[[], httpx2.Client]

    def __call__(self) -> httpx2.Client:
        client = self.factory()
        hooks = client.event_hooks
        client.event_hooks = {
            "request": [*hooks["request"], _on_request],
            "response": [*hooks["response"], _on_response],
        }
        return client


def _on_request(request: httpx2.Request) -> None:
    if call := CALL.get():
        call.on_request(request)


def _on_response(response: httpx2.Response) -> None:
    if call := CALL.get():
        call.on_response(response)


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Silence warnings of huggingface_hub; the errors that follow them are reported."""

    def is_error(record: logging.LogRecord) -> bool:
        return record.levelno >= logging.ERROR

    handlers = client_logging.get_logger().handlers
    for handler in handlers:
        handler.addFilter(is_error)
    try:
        yield
    finally:
        for handler in handlers:
            handler.removeFilter(is_error)
