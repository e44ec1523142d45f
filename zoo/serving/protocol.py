"""HTTP connections of uvicorn, with limits on headers: their size and the time that they take."""

import asyncio
from collections.abc import Callable
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from zoo.overrides import override

MAX_REQUEST_HEADER_BYTES = 32 << 10
HEADER_SECONDS = 10.0
HEADERS_TOO_LARGE = b"431 Request Header Fields Too Large"
FREE_DESCRIPTORS = 64  # that connections leave to files
MAX_CONNECTIONS = 8192  # Each may hold 64 KiB that its client does not read.
UNREAD_SECONDS = 60.0  # A client has to read the end of an answer in this time.
PACKET_BYTES = 1 << 16  # What is written in a turn of the event loop is sent together up to this.
# Keys of the scope of a request.
CONNECTION = "zoo.connection"  # The connection, a ``LimitedProtocol``.
BODY_ARRIVED = "zoo.body_arrived"  # Set when the whole body has arrived.


class JoiningTransport:
    """A transport that sends what is written in a turn of the event loop as one packet.

    uvicorn writes the headers of an answer and its body one after another; sent by themselves,
    each would take a system call here and wake the client up.

    Args:
        transport: the transport of the connection.
        loop: its event loop.
    """

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._unsent = bytearray()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        """Send bytes, together with others that are written in this turn of the event loop."""
        if not self._unsent:
            self._loop.call_soon(self._flush)
        self._unsent += data
        if len(self._unsent) > PACKET_BYTES:
            self._flush()

    def get_write_buffer_size(self) -> int:
        """Return the number of bytes that were not sent."""
        return len(self._unsent) + self._transport.get_write_buffer_size()

    def close(self) -> None:
        """Close the connection after everything was sent."""
        self._flush()
        self._transport.close()

    def _flush(self) -> None:
        if self._unsent:
            # The transport may keep it.
            data = bytes(self._unsent)
            self._unsent.clear()
            self._transport.write(data)


class LimitedProtocol(HttpToolsProtocol):
    """A connection that is closed if its headers are too large or arrive too slowly.

    uvicorn limits neither: a client that sends a byte a second keeps a connection open, and headers
    without an end fill the memory.

    Attributes:
        on_lost: called when the client closes the connection.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.on_lost: Callable[[], object] | None = None
        self._header_timer: asyncio.TimerHandle | None = None
        self._header_bytes = 0
        self._unparsed_bytes = 0
        self._reads_headers = True

    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        joining: Any = JoiningTransport(transport, self.loop)  # type: ignore[arg-type]
        super().connection_made(joining)
        self._start_timer()
        if len(self.connections) > max_connections():
            self._refuse(b"503 Service Unavailable")

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        if self.on_lost is not None:
            self.on_lost()
        super().connection_lost(exc)

    @override
    def data_received(self, data: bytes) -> None:
        if self._reads_headers:
            self._unparsed_bytes += len(data)
        super().data_received(data)
        if not self._reads_headers:
            return
        # ``on_header`` does not count a header that has no end yet.
        if self._unparsed_bytes > MAX_REQUEST_HEADER_BYTES:
            self._refuse(HEADERS_TOO_LARGE)
        elif self._header_timer is None:
            self._start_timer()

    @override
    def on_header(self, name: bytes, value: bytes) -> None:
        self._header_bytes += len(name) + len(value)
        super().on_header(name, value)

    @override
    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._header_bytes = 0
        self._unparsed_bytes = 0
        self._reads_headers = True
        scope: Any = self.scope
        scope[CONNECTION] = self

    @override
    def on_headers_complete(self) -> None:
        self._reads_headers = False
        self._stop_timer()
        if self._header_bytes + len(self.url) > MAX_REQUEST_HEADER_BYTES:
            self._refuse(HEADERS_TOO_LARGE)
        if not self.transport.is_closing():
            super().on_headers_complete()

    @override
    def on_body(self, body: bytes) -> None:
        if not self.transport.is_closing():
            super().on_body(body)

    @override
    def on_message_complete(self) -> None:
        if not self.transport.is_closing():
            scope: Any = self.scope
            scope[BODY_ARRIVED] = True
            super().on_message_complete()

    @override
    def timeout_keep_alive_handler(self) -> None:
        super().timeout_keep_alive_handler()
        if self.transport.get_write_buffer_size():
            # Closing waits until the client has read everything, which it may never do.
            self.loop.call_later(UNREAD_SECONDS, self.transport.abort)

    def _start_timer(self) -> None:
        self._stop_timer()
        self._header_timer = self.loop.call_later(HEADER_SECONDS, self._end_slow_headers)

    def _stop_timer(self) -> None:
        if self._header_timer is not None:
            self._header_timer.cancel()
            self._header_timer = None

    def _end_slow_headers(self) -> None:
        self._refuse(b"408 Request Timeout")

    def _refuse(self, status: bytes) -> None:
        """Answer with a status and close the connection."""
        if not self.transport.is_closing():
            head = b"HTTP/1.1 " + status
            self.transport.write(head + b"\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
            self.transport.close()


def max_connections() -> int:
    """Return the number of connections that memory and the limit on open files allow."""
    try:
        import resource
    except ImportError:  # Windows
        return 512
    soft_limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return min(max(soft_limit - FREE_DESCRIPTORS, 16), MAX_CONNECTIONS)
