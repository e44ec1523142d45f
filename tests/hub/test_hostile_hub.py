"""Malicious servers: errors of one line, bounded time and memory, and no files elsewhere."""

import gzip
import itertools
import json
import os
import struct
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.conftest import reload_hub_settings
from tests.hub.conftest import ETAGS, FILES, REPO, Fetch, partial
from tests.hub.hostile_server import (
    COMMIT,
    Answer,
    ReceivedRequest,
    Reply,
    Server,
    file_entry,
    listing,
)
from tests.processes import run_limited
from zoo.errors import SourceError, UsageError, VerificationError, ZooError
from zoo.hub import client
from zoo.io.limits import MAX_HUB_LISTING_BYTES
from zoo.io.terminal import escape_controls

pytestmark = pytest.mark.usefixtures("hasty")
NAME = "config.json"
CONTENT = FILES[NAME]
ENTRY = file_entry(NAME, ETAGS[NAME], len(CONTENT))
HEAD = {"ETag": f'"{ETAGS[NAME]}"', "X-Repo-Commit": COMMIT}

Serve = Callable[[Reply], Server]


@pytest.fixture
def serve(monkeypatch: pytest.MonkeyPatch) -> Iterator[Serve]:
    """Start a server that ``$HF_ENDPOINT`` names."""
    running = []

    def start(reply: Reply) -> Server:
        server = Server(reply).__enter__()
        running.append(server)
        monkeypatch.setenv("HF_ENDPOINT", server.url)
        reload_hub_settings()
        return server

    yield start
    for server in running:
        server.__exit__()


def files_are(reply: Reply) -> Reply:
    """Return a valid file list, and another response to all other requests."""
    return lambda request: listing(ENTRY) if request.is_listing else reply(request)


def endless(piece: bytes = bytes(1 << 16)) -> Iterator[bytes]:
    return itertools.repeat(piece)


def refused(get: Fetch, kind: type[ZooError] = SourceError) -> str:
    """Fetch, and return the error, which is one line of printable text."""
    with pytest.raises(kind) as error:
        get(select=lambda names: [NAME])
    assert escape_controls(str(error.value)) == str(error.value)
    assert len(str(error.value)) < 500
    assert not list(Path(os.environ["HF_HOME"]).rglob(NAME))
    return str(error.value)


def test_endless_file_list(serve: Serve, get: Fetch) -> None:
    serve(lambda request: Answer(body=endless()))
    assert f"is longer than {MAX_HUB_LISTING_BYTES:,} bytes" in refused(get)


def zeros_compressed(size: int) -> bytes:
    """Return zeros as gzip does, in a time and memory that hardly depend on the size.

    After a full flush, a block of a deflate stream does not refer to those before it.
    """
    block = bytes(1 << 24)
    packer = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    packed = packer.compress(block) + packer.flush(zlib.Z_FULL_FLUSH)
    count, checksum = size // len(block), 0
    for _ in range(count):
        checksum = zlib.crc32(block, checksum)
    end = zlib.compressobj(wbits=-zlib.MAX_WBITS).flush()
    head = bytes([0x1F, 0x8B, 8, 0, 0, 0, 0, 0, 0, 0xFF])  # RFC 1952, without name and time
    return head + packed * count + end + struct.pack("<II", checksum, size)


def test_zeros_compressed_are_gzip() -> None:
    assert gzip.decompress(zeros_compressed(1 << 25)) == bytes(1 << 25)


def test_compression_bomb_in_file_list(serve: Serve) -> None:
    bomb = gzip.compress(zeros_compressed(1 << 30), 6)  # 1 GB in a few KB
    server = serve(lambda request: Answer(200, bomb, {"Content-Encoding": "gzip, gzip"}))
    done = run_limited(["zoo", "fetch", REPO], seconds=60)
    assert done.returncode == 4
    assert done.stderr.startswith("error: ") and done.stderr.count("\n") == 1
    assert done.peak_bytes < 250e6
    assert server.requests[0].headers["accept-encoding"] == "identity"


@pytest.mark.parametrize("status", [302, 401, 404, 429, 503])
def test_endless_body_that_is_not_needed(serve: Serve, get: Fetch, status: int) -> None:
    headers = {"Location": "/api/models/elsewhere"} if status == 302 else {}
    server = serve(lambda request: Answer(status, endless(b"word " * 9999), headers))
    assert refused(get)
    assert len(server.requests) <= 21


@pytest.mark.parametrize("part", ["list", "HEAD", "GET"])
def test_circular_redirects(serve: Serve, get: Fetch, part: str) -> None:
    def reply(request: ReceivedRequest) -> Answer:
        if part == "GET" and request.method == "HEAD":
            return Answer(headers=HEAD)
        return Answer(302, headers={"Location": f"{request.path}#"})

    server = serve(reply if part == "list" else files_are(reply))
    assert "redirect" in refused(get)
    assert len(server.requests) < 50


@pytest.mark.parametrize(
    "location", ["file:///etc/passwd", "http://[", "//", "http://\u00ff:99999/"]
)
def test_malformed_redirect(serve: Serve, get: Fetch, location: str) -> None:
    serve(files_are(lambda request: Answer(302, headers={**HEAD, "Location": location})))
    refused(get)


def test_too_many_files(serve: Serve, get: Fetch) -> None:
    serve(lambda request: listing(*[file_entry(f"{i}", "0" * 40, 0) for i in range(100_001)]))
    assert "number of files is 100,001, and at most 100,000" in refused(get, VerificationError)


@pytest.mark.parametrize(
    "name",
    ["../x", "/x", "a/../../x", "a\\..\\x", "x\0y", "", "x\ny", "\x1b[2Jx", "\u202egnp", "\ud800"],
)
def test_malformed_file_name(serve: Serve, get: Fetch, name: str) -> None:
    serve(lambda request: listing(ENTRY, file_entry(name, "0" * 40, 0)))
    assert f"the file list of {REPO} names" in refused(get, VerificationError)


@pytest.mark.parametrize("name", ["x" * 300, "x/" * 3000 + "x"])
def test_impossible_file_name(serve: Serve, get: Fetch, name: str) -> None:
    serve(lambda request: listing(file_entry(name, ETAGS[NAME], 5)))
    with pytest.raises(ZooError) as error:
        get(select=lambda names: [name])
    assert error.value.exit_code in (2, 3, 4)


def test_file_and_directory_with_one_name(serve: Serve, get: Fetch) -> None:
    inner = f"{NAME}/inner"
    entries = [ENTRY, file_entry(inner, ETAGS[NAME], len(CONTENT))]

    def reply(request: ReceivedRequest) -> Answer:
        return listing(*entries) if request.is_listing else Answer(body=CONTENT, headers=HEAD)

    serve(reply)
    with pytest.raises(UsageError, match="cannot write"):
        get(select=lambda names: [NAME, inner])


@pytest.mark.parametrize(
    "body",
    [
        b"[" * 30_000,
        b'{"siblings":' * 30_000,
        b'{"sha": "%b", "siblings": 7}' % COMMIT.encode(),
        b'{"sha": "%b", "siblings": [7]}' % COMMIT.encode(),
        b'{"sha": 7, "siblings": []}',
        b'{"sha": "../../..", "siblings": []}',
        b'{"sha": "\\u001b[2J", "siblings": []}',
        b'{"sha": "%b", "siblings": [{"rfilename": 7, "size": 1}]}' % COMMIT.encode(),
        b'{"sha": "%b", "createdAt": "never", "siblings": []}' % COMMIT.encode(),
        b"\xff\xfe\x00",
        b"9" * 100_000,
    ],
)
def test_malformed_file_list(serve: Serve, get: Fetch, body: bytes) -> None:
    serve(lambda request: Answer(body=body))
    assert "does not respond as a Hub does" in refused(get)


@pytest.mark.parametrize("size", [-1, 1.5, True, "7", None, 10**40])
def test_malformed_length(serve: Serve, get: Fetch, size: object) -> None:
    serve(lambda request: listing(file_entry(NAME, ETAGS[NAME], size)))
    refused(get, ZooError)


@pytest.mark.parametrize("etag", ["", "../../x", "0" * 39, "G" * 40, 7])
def test_malformed_digest(serve: Serve, get: Fetch, etag: str) -> None:
    serve(lambda request: listing(file_entry(NAME, etag, 1)))
    assert "does not respond as a Hub does" in refused(get)


@pytest.mark.parametrize("size", [10**15, 51 * 10**9])
def test_huge_stated_length(serve: Serve, get: Fetch, size: int) -> None:
    server = serve(lambda request: listing(file_entry(NAME, ETAGS[NAME], size)))
    assert f"length is {size:,}" in refused(get, VerificationError)
    assert [request for request in server.requests if not request.is_listing] == []


def test_endless_file(serve: Serve, get: Fetch) -> None:
    serve(files_are(lambda request: Answer(body=endless(), headers=HEAD)))
    assert f"should have {len(CONTENT)} bytes" in refused(get, VerificationError)
    assert not partial(NAME).exists()


def test_server_does_not_choose_the_cache_path(serve: Serve, get: Fetch, tmp_path: Path) -> None:
    stolen = {
        "ETag": '"../../../../../stolen"',
        "X-Linked-Etag": '"../../../../../stolen"',
        "X-Repo-Commit": "../../stolen",
        "X-Linked-Size": "-7",
    }
    serve(files_are(lambda request: Answer(body=CONTENT, headers=stolen)))
    result = get(select=lambda names: [NAME])
    assert (result.directory / NAME).read_bytes() == CONTENT
    assert result.directory.name == COMMIT
    assert not list(tmp_path.rglob("*stolen*"))


def test_server_cannot_switch_the_client(
    serve: Serve, get: Fetch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_canary")

    def reply(request: ReceivedRequest) -> Answer:
        route = f'<{server.url}/xet-token>; rel="xet-auth"'
        return Answer(body=CONTENT, headers={**HEAD, "X-Xet-Hash": "0" * 64, "Link": route})

    server = serve(files_are(reply))
    assert (get(select=lambda names: [NAME]).directory / NAME).read_bytes() == CONTENT
    assert not [request for request in server.requests if "xet-token" in request.path]


@pytest.mark.parametrize(
    "headers",
    [
        {"Content-Range": "bytes 0-4/*"},
        {"Content-Range": "bytes x"},
        {"Content-Range": "bytes 99999999999999999999-5/7"},
        {},
    ],
)
def test_unrequested_range(serve: Serve, get: Fetch, headers: dict[str, str]) -> None:
    serve(files_are(lambda request: Answer(206, CONTENT[:5], {**HEAD, **headers})))
    refused(get, ZooError)


@pytest.mark.parametrize("value", ["-1", "1e9", "\u00b2", "Fri, 99 Jan 9999 00:00:00", "9" * 5000])
def test_malformed_retry_after(serve: Serve, get: Fetch, value: str) -> None:
    headers = {"Retry-After": value.encode().decode("latin-1"), "RateLimit": '"api";r=0;t=x'}
    serve(lambda request: Answer(429, headers=headers))
    assert "too many requests" in refused(get)


@pytest.mark.parametrize(
    "body",
    [b"[]", b'{"error": {"a": 1}}', b'{"errors": 7}', b"[" * 60_000, b"\xff", b'"x\\u001b[2J"'],
)
@pytest.mark.parametrize("status", [400, 403, 404, 500])
def test_malformed_error_body(serve: Serve, get: Fetch, status: int, body: bytes) -> None:
    serve(lambda request: Answer(status, body, {"X-Error-Message": "a\x1b]0;title\x07b"}))
    assert f"answered {status}" in refused(get)


def test_malformed_http(serve: Serve, get: Fetch) -> None:
    serve(lambda request: Answer(200, reason="OK\r\nContent-Length: 3\r\nContent-Length: 4"))
    assert "was cut while reading" in refused(get)


def test_slow_response(serve: Serve, get: Fetch, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "HUB_SLOW_SECONDS", 0.2)

    def trickle() -> Iterator[bytes]:
        while True:
            time.sleep(0.05)
            yield b" "

    serve(lambda request: Answer(body=trickle()))
    assert f"bytes for {REPO} came in 0 s" in refused(get)


def test_other_http_requests_are_not_limited(serve: Serve, get: Fetch) -> None:
    """Other requests of the program with the same HTTP client are not limited."""
    from huggingface_hub import HfApi, get_session

    body = json.dumps({"id": REPO, "padding": "x" * MAX_HUB_LISTING_BYTES}).encode()
    server = serve(lambda request: Answer(body=body))
    refused(get)
    assert HfApi().model_info(REPO).id == REPO
    assert len(get_session().get(f"{server.url}/anything").content) == len(body)
