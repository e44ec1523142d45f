"""An object store and a web server on loopback, with requests that fail."""

import http.client
import itertools
import logging
import os
import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

DENIED = "denied"  # the bucket that nobody may read or write
_NUMBERS = itertools.count()
_ERROR = "<Error><Code>{code}</Code><Message>{code}</Message></Error>"
_HOP_HEADERS = {"connection", "transfer-encoding", "date", "server"}
REGION = "us-east-1"
# The object store only looks at whether a request is signed.
SIGNED = f"AWS4-HMAC-SHA256 Credential=key/20260101/{REGION}/s3/aws4_request"


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    owner: Any

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that ends a connection is no error."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def log_message(self, *_: object) -> None:
        """Log nothing."""

    def handle_any(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        self.server.owner.answer(self, self.rfile.read(length))

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = handle_any

    def send(self, status: int, headers: dict[str, str], body: bytes, cut_at: int = -1) -> None:
        self.send_response_only(status)
        for name, value in headers.items():
            self.send_header(name, value)
        if "Content-Length" not in headers:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body if cut_at < 0 else body[:cut_at])
        if cut_at >= 0:
            self.wfile.flush()
            self.close_connection = True


@contextmanager
def _serving(owner: Any) -> Iterator[str]:
    server = _Server(("127.0.0.1", 0), _Handler)
    server.owner = owner
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()


@cache
def _moto() -> tuple[str, int]:
    """Start the object store of this process."""
    moto = pytest.importorskip("moto.server", reason="moto is not installed")
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = moto.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    return host, port


@dataclass
class Store:
    """A bucket, behind a proxy that lets requests fail.

    Attributes:
        bucket: name of the bucket.
        url: the proxy.
        failing: share of the requests that fail or are cut.
        log: method and path of each request.
        failed: number of requests that failed.
        denied_after: number of objects that may be written; negative for any.
    """

    bucket: str
    url: str = ""
    failing: float = 0.0
    log: list[tuple[str, str]] = field(default_factory=list)
    failed: int = 0
    denied_after: int = -1
    _random: random.Random = field(default_factory=lambda: random.Random(7))
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __getitem__(self, key: str) -> bytes:
        status, _, body = self._forward("GET", f"/{self.bucket}/{key}", {}, b"")
        if status != 200:
            raise KeyError(key)
        return body

    def __setitem__(self, key: str, content: bytes) -> None:
        status, _, _ = self._forward("PUT", f"/{self.bucket}/{key}", {}, content)
        assert status == 200

    def remove(self, key: str) -> None:
        self._forward("DELETE", f"/{self.bucket}/{key}", {}, b"")

    def names(self) -> list[str]:
        """Return the names of all objects."""
        _, _, body = self._forward("GET", f"/{self.bucket}?list-type=2", {}, b"")
        return [part.partition(b"<")[0].decode() for part in body.split(b"<Key>")[1:]]

    def put_folder(self, folder: Any, prefix: str) -> None:
        """Upload the files of a folder."""
        for path in sorted(folder.rglob("*")):
            if path.is_file():
                self[f"{prefix}/{path.relative_to(folder).as_posix()}"] = path.read_bytes()

    def at(self, key: str) -> str:
        """Return the URL of an object."""
        return f"s3://{self.bucket}/{key}"

    def answer(self, handler: _Handler, body: bytes) -> None:
        """Forward a request, or let it fail."""
        path = handler.path
        with self._lock:
            self.log.append((handler.command, path))
            draw = self._random.random()
            fails = draw < self.failing
            self.failed += fails
            is_cut = fails and draw * 2 < self.failing
            is_denied = handler.command == "PUT" and not self.denied_after
            if handler.command == "PUT" and self.denied_after > 0:
                self.denied_after -= 1
        if is_denied or path.lstrip("/").startswith(DENIED):
            handler.send(403, {}, _ERROR.format(code="AccessDenied").encode())
            return
        if fails and not is_cut:
            handler.send(503, {}, _ERROR.format(code="ServiceUnavailable").encode())
            return
        headers = {name: value for name, value in handler.headers.items() if name != "Host"}
        status, answer_headers, content = self._forward(handler.command, path, headers, body)
        handler.send(status, answer_headers, content, len(content) // 2 if is_cut else -1)

    def _forward(
        self, method: str, path: str, headers: dict[str, str], body: bytes
    ) -> tuple[int, dict[str, str], bytes]:
        connection = http.client.HTTPConnection(*_moto())
        try:
            connection.request(method, path, body, {"Authorization": SIGNED, **headers})
            response = connection.getresponse()
            content = response.read()
            answer_headers = {}
            for name, value in response.getheaders():
                if name.lower() not in _HOP_HEADERS:
                    answer_headers[name] = value
            return response.status, answer_headers, content
        finally:
            connection.close()


@pytest.fixture
def store(isolated: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    """An empty bucket that ``$AWS_ENDPOINT_URL`` serves, here and in subprocesses."""
    s3fs = pytest.importorskip("s3fs", reason="s3fs is not installed")
    s3fs.S3FileSystem.clear_instance_cache()  # its clients have the address of another proxy
    bucket = Store(f"bucket-{os.getpid()}-{next(_NUMBERS)}")
    status, _, _ = bucket._forward("PUT", f"/{bucket.bucket}", {}, b"")
    assert status == 200
    with _serving(bucket) as bucket.url:
        monkeypatch.setenv("AWS_ENDPOINT_URL", bucket.url)
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hunter2")
        monkeypatch.setenv("AWS_DEFAULT_REGION", REGION)
        monkeypatch.setenv("AWS_CONFIG_FILE", os.devnull)
        yield bucket


@dataclass
class Web:
    """A web server.

    Attributes:
        url: its address.
        files: path -> content.
        has_ranges: whether it answers requests of a part.
        etags: whether it names versions.
        cut: number of answers that are cut.
        log: method, path and range of each request.
    """

    url: str = ""
    files: dict[str, bytes] = field(default_factory=dict)
    has_ranges: bool = True
    etags: bool = True
    cut: int = 0
    log: list[tuple[str, str, str]] = field(default_factory=list)

    def answer(self, handler: _Handler, _: bytes) -> None:
        """Send a file, or a part of it."""
        wanted: str = handler.headers.get("Range", "")
        self.log.append((handler.command, handler.path, wanted))
        content = self.files.get(handler.path.partition("?")[0])
        if content is None:
            handler.send(404, {}, b"")
            return
        headers = {}
        if self.etags:
            headers["ETag"] = f'"{hash(content)}"'
        status = 200
        if self.has_ranges and wanted:
            first, last = wanted.removeprefix("bytes=").split("-")
            end = min(int(last or len(content)), len(content) - 1)
            headers["Content-Range"] = f"bytes {first}-{end}/{len(content)}"
            content = content[int(first) : end + 1]
            status = 206
        headers["Content-Length"] = str(len(content))
        headers["Accept-Ranges"] = "bytes" if self.has_ranges else "none"
        cut_at = -1
        if self.cut and handler.command == "GET":
            self.cut -= 1
            cut_at = len(content) // 2
        handler.send(status, headers, content, cut_at)


@pytest.fixture
def web(isolated: None) -> Iterator[Web]:
    """A web server without files."""
    pytest.importorskip("aiohttp", reason="aiohttp is not installed")
    server = Web()
    with _serving(server) as server.url:
        yield server
