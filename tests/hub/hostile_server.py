"""An HTTP server with responses that a test defines, and a record of the requests."""

import contextlib
import json
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

COMMIT = "0123456789" * 4


@dataclass(frozen=True)
class Answer:
    """Response of the server; an iterator as body is sent in chunks, without a length."""

    status: int = 200
    body: bytes | Iterable[bytes] = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    reason: str | None = None


@dataclass(frozen=True)
class ReceivedRequest:
    method: str
    path: str
    headers: Mapping[str, str]

    @property
    def is_listing(self) -> bool:
        return self.path.startswith("/api/models/")


Reply = Callable[[ReceivedRequest], Answer]


class Server:
    """Context manager that runs the server; ``server.url`` is its address."""

    def __init__(self, reply: Reply) -> None:
        self.reply = reply
        self.requests: list[ReceivedRequest] = []
        handler = type("Bound", (_Handler,), {"owner": self})
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> "Server":
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._server.shutdown()
        self._server.server_close()


class _Handler(BaseHTTPRequestHandler):
    owner: Server
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def do_GET(self) -> None:
        request = ReceivedRequest(
            self.command, self.path, {k.lower(): v for k, v in self.headers.items()}
        )
        self.owner.requests.append(request)
        with contextlib.suppress(ConnectionError):  # the client closes the connection
            self.send(self.owner.reply(request))

    do_HEAD = do_GET

    def send(self, answer: Answer) -> None:
        whole = answer.body if isinstance(answer.body, bytes) else None
        length = {"Transfer-Encoding": "chunked"} if whole is None else {}
        if whole is not None:
            length = {"Content-Length": str(len(whole))}
        self.send_response(answer.status, answer.reason)
        for key, value in {**length, **answer.headers}.items():
            self.send_header(key, value)
        self.end_headers()
        if self.command == "HEAD":
            return
        if whole is not None:
            self.wfile.write(whole)
            return
        for chunk in answer.body:
            assert isinstance(chunk, bytes)
            self.wfile.write(b"%x\r\n%b\r\n" % (len(chunk), chunk))
        self.wfile.write(b"0\r\n\r\n")


def listing(*siblings: Any, **fields: Any) -> Answer:
    """Return a file list with entries of ``file_entry``."""
    content = {"id": "someone/tiny", "sha": COMMIT, "siblings": list(siblings), **fields}
    return Answer(body=json.dumps(content).encode())


def file_entry(name: str, etag: str, size: object) -> dict[str, object]:
    return {"rfilename": name, "size": size, "blobId": etag}
