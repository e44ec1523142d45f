"""HTTP itself: methods, versions, connections that stay open, addresses, and the page of /docs."""

import asyncio
import json
import re
import socket
import time
from pathlib import Path

import numpy as np
import pytest

from tests.serving.server import Server
from tools.browser import BROWSER, Browser
from zoo.serving.server import Address, listen

TEXT = "A cat sat on the mat."
BODY = json.dumps({"inputs": TEXT}).encode()
HEAD = b"POST /embed HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
STREAM = (
    b'{"model": "decoder", "prompt": "The cat", "max_tokens": 4, "temperature": 0, "stream": true}'
)


def read_answer(connection: socket.socket) -> tuple[int, dict[str, str], bytes]:
    """Return status, headers and body of an answer with a length; the connection stays open."""
    content = b""
    while b"\r\n\r\n" not in content:
        part = connection.recv(65536)
        assert part, f"the connection has ended after {content!r}"
        content += part
    head, _, body = content.partition(b"\r\n\r\n")
    status_line, *lines = head.decode().split("\r\n")
    headers = {}
    for line in lines:
        name, _, value = line.partition(":")
        headers[name.lower()] = value.strip()
    while len(body) < int(headers.get("content-length", 0)):
        body += connection.recv(65536)
    return int(status_line.split()[1]), headers, body


def test_head_has_no_body(server: Server) -> None:
    answer = server.exchange(
        b"HEAD /v1/models HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    )
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 ") and body == b""
    assert re.search(rb"(?i)content-length: [1-9]", head)


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [("OPTIONS", "/embed", "POST"), ("GET", "/embed", "POST"), ("DELETE", "/health", "GET, HEAD")],
)
def test_other_methods_are_told_which_there_are(
    server: Server, method: str, path: str, allowed: str
) -> None:
    request = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    head = server.exchange(request.encode()).partition(b"\r\n\r\n")[0].decode()
    assert head.startswith("HTTP/1.1 405 ")
    (methods,) = re.findall(r"(?im)^allow: (.*?)\r?$", head)
    assert sorted(methods.split(", ")) == sorted(allowed.split(", "))
    assert "access-control-allow" not in head.lower()  # no page of another host


def test_headers_and_body_are_one_packet(server: Server) -> None:
    with server.connect() as connection:
        for _ in range(3):
            connection.sendall(HEAD + b"Content-Length: %d\r\n\r\n" % len(BODY) + BODY)
            head, _, body = connection.recv(1 << 20).partition(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 200 ") and len(json.loads(body)[0]) == 384


def test_events_of_a_stream_are_sent_one_by_one(server: Server) -> None:
    head = HEAD.replace(b"/embed", b"/v1/completions")
    body = STREAM.replace(b'"max_tokens": 4', b'"max_tokens": 40')
    parts: list[bytes] = []
    with server.connect() as connection:
        connection.sendall(head + b"Content-Length: %d\r\n\r\n" % len(body) + body)
        while b"data: [DONE]" not in b"".join(parts):
            parts.append(connection.recv(1 << 20))
    # Packets that are read late are read together.
    assert b"".join(parts).count(b"data: ") > 4 and len(parts) >= 3


def test_a_body_is_sent_after_100_continue(server: Server) -> None:
    head = HEAD + b"Expect: 100-continue\r\nContent-Length: %d\r\n\r\n"
    with server.connect() as connection:
        connection.sendall(head % len(BODY))
        assert connection.recv(1000) == b"HTTP/1.1 100 Continue\r\n\r\n"
        connection.sendall(BODY)
        assert read_answer(connection)[0] == 200
    with server.connect() as connection:
        connection.sendall(head % 100_000_000)
        status, headers, _ = read_answer(connection)  # without 100 Continue
        assert status == 413 and headers["connection"] == "close"


def test_http_1_0_has_no_chunks(server: Server) -> None:
    head = b"POST %s HTTP/1.0\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    answer = server.exchange(head % b"/embed" + b"Content-Length: %d\r\n\r\n" % len(BODY) + BODY)
    assert b" 200 " in answer and len(json.loads(answer.partition(b"\r\n\r\n")[2])[0]) == 384
    length = b"Content-Length: %d\r\n\r\n" % len(STREAM)
    answer = server.exchange(head % b"/v1/completions" + length + STREAM)
    headers, _, body = answer.partition(b"\r\n\r\n")
    assert b"chunked" not in headers.lower() and b"connection: close" in headers.lower()
    *events, end = body.decode().strip().split("\n\n")
    assert end == "data: [DONE]" and len(events) > 1
    for event in events:
        json.loads(event.removeprefix("data: "))


def test_a_connection_stays_open_after_errors(server: Server) -> None:
    wrong = (b"{", b'{"inputs": 1}', json.dumps({"inputs": "word " * 400}).encode())
    with server.connect() as connection:
        for body, expected in (
            *zip(wrong, (422, 422, 413), strict=True),
            (BODY, 200),
        ):
            connection.sendall(HEAD + b"Content-Length: %d\r\n\r\n" % len(body) + body)
            status, headers, _ = read_answer(connection)
            assert status == expected and headers.get("connection") != "close"
        connection.sendall(b"GET /nothing HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert read_answer(connection)[0] == 404
        connection.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert read_answer(connection)[0] == 200


def test_a_client_that_leaves_before_its_body_ends_is_no_failure(server: Server) -> None:
    failures = server.log().count("a request has failed")
    for _ in range(3):
        with server.connect() as connection:
            connection.sendall(HEAD + b"Content-Length: 99\r\n\r\n{")
            time.sleep(0.05)
    server.post("/embed", {"inputs": TEXT})
    assert server.log().count("a request has failed") == failures


def test_a_slash_at_the_end_is_another_path(server: Server) -> None:
    reply = server.post("/embed/", {"inputs": TEXT})
    assert reply.status == 404 and "location" not in reply.headers


@pytest.mark.long
@pytest.mark.skipif(not socket.has_ipv6, reason="needs IPv6")
def test_ipv6_on_loopback(models: Path) -> None:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        pytest.skip("this machine has no IPv6 address")
    with Server([models / "classifier"], "--host", "::1") as server:
        assert re.fullmatch(r"http://\[::1\]:\d+", server.url)
        assert server.post("/predict", {"inputs": "a b"}).status == 200
        assert server.post("/predict", {"inputs": "a b"}, host="example.com").status == 403


@pytest.mark.parametrize("direction", ["Left", "right"])
def test_texts_are_cut_on_the_side_of_the_request(
    server: Server, models: Path, direction: str
) -> None:
    from sentence_transformers import SentenceTransformer

    peer = SentenceTransformer(str(models / "minilm"), device="cpu")
    peer.tokenizer.truncation_side = direction.lower()
    text = "Interest rates rose. " * 60 + "A cat sat on the mat. " * 60
    expected = peer.encode([text])
    body = {"inputs": text, "truncate": True, "truncation_direction": direction}
    reply = server.post("/embed", body)
    assert reply.status == 200
    np.testing.assert_allclose(reply.body, expected, atol=1e-5)


@pytest.mark.long
@pytest.mark.skipif(BROWSER is None, reason="needs Chromium")
def test_the_page_of_docs_in_a_browser(server: Server) -> None:
    browser = Browser()
    try:
        browser.call("Page.navigate", url=f"{server.url}/docs")
        limit = time.monotonic() + 60
        while browser.evaluate("document.title") != "zoo serve":
            assert time.monotonic() < limit
            time.sleep(0.05)
        headings = browser.evaluate("[...document.querySelectorAll('h2')].map(h => h.textContent)")
        assert "POST /v1/embeddings" in headings and "POST /run/embed" in headings
        width = browser.evaluate("document.documentElement.scrollWidth - window.innerWidth")
        assert width <= 0
        for event in browser.events:
            if event.get("method") == "Network.requestWillBeSent":
                url = event["params"]["request"]["url"]
                assert url.startswith((server.url, "about:")), url
            assert event.get("method") != "Runtime.exceptionThrown"
    finally:
        browser.close()


@pytest.mark.long
def test_clients_that_do_not_read_are_disconnected(server: Server) -> None:
    # The answer is larger than the buffers of a connection.
    texts = [f"{TEXT} {number}" for number in range(256)]
    body = json.dumps({"inputs": texts}).encode()
    request = b"POST /embed_all HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    with server.connect() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.sendall(request + b"Content-Length: %d\r\n\r\n" % len(body) + body)
        limit = time.monotonic() + 150
        while server.metric("zoo_waiting_requests") < 1:
            assert time.monotonic() < limit
            time.sleep(0.1)
        while server.metric("zoo_waiting_requests") > 0:
            assert time.monotonic() < limit
            time.sleep(1)
        received = 0
        try:
            while part := connection.recv(1 << 20):
                received += len(part)
        except ConnectionResetError:
            pass
    # About ten numbers of ten characters for each of 384 dimensions and ten tokens of 256 texts.
    assert received < 5_000_000
    assert server.metric("zoo_waiting_bytes") == 0


@pytest.mark.parametrize("reuse_port", [False, True])
def test_packets_do_not_wait_for_acknowledgements(reuse_port: bool) -> None:
    async def accept_one() -> int:
        options: asyncio.Queue[int] = asyncio.Queue()

        async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            accepted = writer.get_extra_info("socket")
            options.put_nowait(accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
            writer.close()

        server_socket = listen(Address("127.0.0.1", 0, reuse_port=reuse_port))
        async with await asyncio.start_server(accept, sock=server_socket):
            _, writer = await asyncio.open_connection(*server_socket.getsockname())
            option = await options.get()
            writer.close()
        return option

    assert asyncio.run(accept_one()) != 0
