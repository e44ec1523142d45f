"""Requests and clients that are wrong, slow or too many: one clear answer, and the server stays."""

import json
import re
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.checkpoints import VOCABULARY
from tests.inference.conftest import converted
from tests.inference.making import write_manifest
from tests.serving.conftest import KEY
from tests.serving.server import Reply, Server, wait_until
from tests.warm import zoo

POST = b"POST /embed HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
TEXT = "A cat sat on the mat."
SECRET = "a text that belongs to nobody else"
BEARER = {"authorization": f"Bearer {KEY}"}


@pytest.fixture(autouse=True)
def still_serves(server: Server) -> Iterator[None]:
    """After each test, the server answers a request as before."""
    yield
    reply = server.post("/embed", {"inputs": TEXT})
    assert reply.status == 200 and len(reply.body[0]) == 384
    assert server.process.poll() is None
    assert server.get("/health").status == 200


@pytest.fixture(scope="module")
def broken(models: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with little memory, of a classifier that fails on a word, and of an encoder."""
    checkpoint = converted(models / "classifier", tmp_path_factory.mktemp("broken") / "model")
    break_word(checkpoint.path / "model.safetensors", VOCABULARY.index("j"))
    write_manifest(checkpoint.path)
    with Server([checkpoint.path, models / "prompted"], "--max-waiting-mb", 1) as running:
        yield running


def openai_error(reply: Reply) -> str:
    """Return the message of an error after checking its format."""
    assert set(reply.body) == {"error"}
    assert set(reply.body["error"]) == {"message", "type", "param", "code"}
    return one_line(reply.body["error"]["message"])


def inference_error(reply: Reply) -> str:
    """Return the message of an error of text-embeddings-inference after checking its format."""
    assert set(reply.body) == {"error", "error_type"}
    kinds = ("Unhealthy", "Backend", "Overloaded", "Validation", "Tokenizer", "Empty")
    assert reply.body["error_type"] in kinds
    return one_line(reply.body["error"])


def cohere_error(reply: Reply) -> str:
    """Return the message of an error of Cohere's interface after checking its format."""
    assert set(reply.body) <= {"id", "message"}
    return one_line(reply.body["message"])


def one_line(message: str) -> str:
    assert message and "\n" not in message and "Traceback" not in message and len(message) < 500
    return message


# Starting


def test_a_port_in_use_is_one_line(models: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = zoo("serve", models / "classifier", "--port", port)
    assert done.returncode == 2 and done.stdout == ""
    assert re.fullmatch(rf"error: .*{port}.*\n", done.stderr), done.stderr


def test_a_model_that_does_not_exist_is_one_line() -> None:
    done = zoo("serve", "./nothing", "--port", 0)
    assert done.returncode in (2, 4) and done.stdout == ""
    assert done.stderr.startswith("error: ") and done.stderr.count("\n") == 1


def test_two_models_of_one_name_are_an_error(models: Path, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "minilm").symlink_to(models / "minilm")
    done = zoo("serve", models / "minilm", tmp_path / "other" / "minilm", "--port", 0)
    assert done.returncode == 2 and "minilm" in done.stderr and done.stdout == ""


def test_other_addresses_need_a_key(models: Path) -> None:
    done = zoo("serve", models / "classifier", "--host", "0.0.0.0", "--port", 0)
    assert done.returncode == 2 and "--api-key" in done.stderr and "--no-auth" in done.stderr


def test_a_key_and_no_authentication_exclude_each_other(models: Path) -> None:
    done = zoo("serve", models / "classifier", "--api-key", "x", "--no-auth", "--port", 0)
    assert done.returncode == 2 and done.stdout == ""


# Requests

WRONG_BODIES = {
    "nothing": b"",
    "not JSON": b"{",
    "not UTF-8": b'{"input": "\xff"}',
    "a list": b"[]",
    "a number": b"1",
    "no field": b"{}",
    "a text that is a number": b'{"input": 1}',
    "a text that is null": b'{"input": null}',
    "no text": b'{"input": []}',
    "a text and a number": b'{"input": ["a", 1]}',
    "token ids": b'{"input": [1, 2, 3]}',
    "NaN": b'{"input": "a", "dimensions": NaN}',
    "infinity": b'{"input": "a", "dimensions": Infinity}',
    "a large number": b'{"input": "a", "dimensions": 1e999}',
    "dimensions of 0": b'{"input": "a", "dimensions": 0}',
    "dimensions below 0": b'{"input": "a", "dimensions": -1}',
    "too many dimensions": b'{"input": "a", "dimensions": 385}',
    "an encoding": b'{"input": "a", "encoding_format": "hex"}',
    "a key twice": b'{"input": "a", "input": "b"}',
    "an unknown key": b'{"input": "a", "template": "{{ 1 }}"}',
    "half a surrogate": b'{"input": "\\ud800"}',
    "a zero byte": b'{"input": "a", "model": "minilm\\u0000"}',
    "depth": b'{"input": ' + 100_000 * b"[" + 100_000 * b"]" + b"}",
    "a long number": b'{"input": "a", "dimensions": ' + 100_000 * b"1" + b"}",
}


@pytest.mark.parametrize("name", WRONG_BODIES)
def test_a_wrong_body_is_refused(server: Server, name: str) -> None:
    reply = server.post("/v1/embeddings", WRONG_BODIES[name])
    assert reply.status in (400, 404), reply
    assert "file" not in openai_error(reply)


@pytest.mark.parametrize(
    "body",
    [
        {"inputs": 1},
        {"inputs": []},
        {"inputs": "a", "truncate": "yes"},
        {"inputs": "a", "normalize": 1},
        {"inputs": "a", "prompt_name": "nothing"},
        {"inputs": "a", "prompt_name": "../../etc/passwd"},
        {"inputs": "a", "dimensions": 0},
        {"inputs": "a", "truncation_direction": "up"},
        {"input": "a"},
    ],
)
def test_a_wrong_request_of_inference_is_refused(server: Server, body: Any) -> None:
    reply = server.post("/embed", body)
    assert reply.status == 422
    inference_error(reply)


@pytest.mark.parametrize(
    "body",
    [
        {"query": "a"},
        {"query": "a", "documents": "a"},
        {"query": "a", "documents": []},
        {"query": "a", "documents": ["a"], "top_n": 0},
        {"query": "a", "documents": ["a"], "top_n": 1.5},
        {"query": "a", "documents": [{"text": 1}]},
    ],
)
def test_a_wrong_request_of_cohere_is_refused(server: Server, body: Any) -> None:
    reply = server.post("/v2/rerank", {"model": "reranker", **body})
    assert reply.status == 400
    cohere_error(reply)


@pytest.mark.parametrize("name", ["nothing", "", "../minilm", "/etc/passwd", "minilm/../minilm"])
def test_an_unknown_model_is_not_found(server: Server, name: str) -> None:
    reply = server.post("/v1/embeddings", {"model": name, "input": TEXT})
    assert reply.status == 404
    assert "minilm" in openai_error(reply) and reply.body["error"]["param"] == "model"
    reply = server.post("/v2/rerank", {"model": name, "query": TEXT, "documents": [TEXT]})
    assert reply.status == 404
    cohere_error(reply)
    reply = server.post("/embed", {"model": name, "inputs": TEXT})
    assert reply.status == 404
    inference_error(reply)


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/embed_sparse", {"inputs": TEXT, "model": "minilm"}),
        ("/predict", {"inputs": TEXT, "model": "minilm"}),
        ("/predict", {"inputs": TEXT, "model": "decoder"}),
        ("/rerank", {"query": TEXT, "texts": [TEXT], "model": "classifier"}),
        ("/v1/completions", {"prompt": TEXT, "model": "minilm"}),
        ("/run/generate", {"inputs": TEXT, "model": "minilm"}),
    ],
)
def test_a_model_that_does_not_serve_an_endpoint(
    server: Server, path: str, body: dict[str, Any]
) -> None:
    reply = server.post(path, body)
    assert reply.status in (400, 422), reply
    assert body["model"] in json.dumps(reply.body)


@pytest.mark.parametrize("path", ["/nothing", "/v1/nothing", "/run/nothing", "/../etc/passwd"])
def test_an_unknown_path_is_not_found(server: Server, path: str) -> None:
    assert server.post(path, {"inputs": TEXT}).status == 404


@pytest.mark.parametrize("path", ["/run/..%2f..%2fetc%2fpasswd", "/%2e%2e/%2e%2e/etc/passwd"])
def test_paths_are_not_files(server: Server, path: str) -> None:
    answer = server.exchange(
        f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode()
    )
    assert re.match(rb"HTTP/1.1 (404|405) ", answer) and b"root:" not in answer


def test_the_method_is_checked(server: Server) -> None:
    assert server.get("/embed").status == 405
    assert server.post("/health", {}).status == 405


def test_templates_are_plain_text(server: Server) -> None:
    texts = ["{{ 7 * 7 }}", "${7*7}", "{0.__class__}", "%s%n"]
    together = server.post("/embed", {"inputs": texts}).body
    for text, vector in zip(texts, together, strict=True):
        assert (
            np.abs(np.subtract(server.post("/embed", {"inputs": text}).body[0], vector)).max()
            < 1e-6
        )


def test_options_that_name_files_are_refused(server: Server) -> None:
    for options in ({"output": "/tmp/x"}, {"input": "/etc/passwd"}, {"adapter": "/tmp"}):
        reply = server.post("/run/embed", {"inputs": [TEXT], "options": options})
        assert reply.status == 400, reply


def test_a_long_text_is_refused_or_cut(server: Server) -> None:
    text = "word " * 400
    for path, body, check in (
        ("/v1/embeddings", {"input": text}, openai_error),
        ("/embed", {"inputs": text}, inference_error),
    ):
        reply = server.post(path, body)
        assert reply.status == 413 and "256" in check(reply)
        assert server.post(path, {**body, "truncate": True}).status == 200
    both = {"inputs": [TEXT, text], "truncate": True}
    cut = server.post("/embed", {"inputs": "word " * 254, "truncate": True}).body[0]
    assert np.abs(np.subtract(server.post("/embed", both).body[1], cut)).max() < 1e-6


def test_one_bad_request_does_not_fail_its_batch(server: Server) -> None:
    expected = server.post("/embed", {"inputs": TEXT}).body[0]

    def send(number: int) -> Reply:
        if number % 3 == 0:
            return server.post("/embed", {"inputs": [TEXT, "word " * 400]})
        return server.post("/embed", {"inputs": [TEXT, f"number {number}"]})

    with ThreadPoolExecutor(24) as pool:
        replies = list(pool.map(send, range(48)))
    for number, reply in enumerate(replies):
        assert reply.status == (413 if number % 3 == 0 else 200)
        if number % 3:
            assert np.abs(np.subtract(reply.body[0], expected)).max() < 1e-6


def test_ten_megabytes_in_one_text(server: Server) -> None:
    text = "word " * 2_000_000
    reply = server.post("/v1/embeddings", {"input": text})
    assert reply.status == 413
    openai_error(reply)
    cut = server.post("/v1/embeddings", {"input": text, "truncate": True})
    assert cut.status in (200, 413)


def test_a_hundred_thousand_texts(server: Server) -> None:
    reply = server.post("/v1/embeddings", {"input": ["a"] * 100_000})
    assert reply.status == 413
    assert "100,000" in openai_error(reply)
    reply = server.post(
        "/v2/rerank", {"model": "reranker", "query": "a", "documents": ["a"] * 100_000}
    )
    assert reply.status == 413
    cohere_error(reply)


def test_a_body_over_the_limit_is_not_read(server: Server) -> None:
    answer = server.exchange(POST + b"Content-Length: 100000000000\r\n\r\n{")
    assert answer.startswith(b"HTTP/1.1 413 ")


def test_an_answer_before_the_end_of_a_body_arrives(server: Server) -> None:
    # The answer is sent after the header; closing the connection then would reset it, and the
    # answer that the client has not read yet would be lost.
    part = b"a" * (1 << 20)
    for _ in range(5):
        with socket.create_connection(server.address, timeout=30) as connection:
            connection.sendall(POST + b"Content-Length: %d\r\n\r\n" % (40 * len(part)))
            for _ in range(40):
                connection.sendall(part)
            time.sleep(0.1)
            answer = b""
            while received := connection.recv(65536):
                answer += received
        assert answer.startswith(b"HTTP/1.1 413 ") and answer.endswith(b"}")


def test_large_headers_are_refused(server: Server) -> None:
    start = b"GET /health HTTP/1.1\r\nHost: localhost\r\n"
    one = start + b"X: " + b"a" * 100_000 + b"\r\n\r\n"
    many = start + b"X: a\r\n" * 20_000 + b"\r\n"
    endless = start + b"X: " + b"a" * 1_000_000
    path = b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n"
    for head in (one, many, endless, path):
        answer = server.exchange(head)
        assert answer.startswith(b"HTTP/1.1 431 ") and answer.count(b"HTTP/1.1") == 1


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"\x00" * 1000 + b"\r\n\r\n",
        b"GET\r\n\r\n",
        POST + b"Content-Length: -1\r\n\r\n",
        POST + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\naa",
        POST + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n",
    ],
)
def test_bytes_that_are_not_http(server: Server, request_bytes: bytes) -> None:
    answer = server.exchange(request_bytes)
    assert answer == b"" or answer.startswith(b"HTTP/1.1 4")


# Clients


@pytest.mark.long
def test_a_client_that_sends_a_byte_a_second(server: Server) -> None:
    slow = b"GET /health HTTP/1.1\r\nHost: localhost\r\nX-Slow: " + 100 * b"a"
    begin = time.monotonic()
    with server.connect() as connection, suppress(OSError):
        for byte in slow:
            connection.sendall(bytes([byte]))
            time.sleep(1)
            connection.settimeout(0.01)
            with suppress(TimeoutError):
                if connection.recv(1000):
                    break
    assert time.monotonic() - begin < 30


def test_slow_clients_do_not_stop_others(server: Server) -> None:
    half = POST + b"Content-Length: 99\r\n\r\n{"
    connections = [server.connect() for _ in range(50)]
    try:
        for connection in connections:
            connection.sendall(half)
        begin = time.monotonic()
        assert server.post("/embed", {"inputs": TEXT}).status == 200
        assert time.monotonic() - begin < 20
    finally:
        for connection in connections:
            connection.close()


def test_the_work_of_a_client_that_leaves_is_cancelled(server: Server) -> None:
    # One request has more texts than are computed in a second.
    body = json.dumps({"inputs": [f"{TEXT} {number} " * 12 for number in range(1000)]}).encode()
    head = POST + f"Content-Length: {len(body)}\r\n\r\n".encode()
    before = server.metric("zoo_texts_total")
    with server.connect() as connection:
        connection.sendall(head + body)
        wait_until(lambda: server.metric("zoo_waiting_requests") >= 1)
    wait_until(lambda: server.metric("zoo_waiting_requests") == 0)
    assert server.metric("zoo_waiting_bytes") == 0
    assert server.metric("zoo_texts_total") - before < 1000


def test_a_stream_that_nobody_reads_ends(server: Server) -> None:
    body = b'{"model": "decoder", "prompt": "The", "max_tokens": 50, "stream": true}'
    head = (
        b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        + f"Content-Length: {len(body)}\r\n\r\n".encode()
    )
    for _ in range(5):
        with server.connect() as connection:
            connection.sendall(head + body)
            assert connection.recv(1000).startswith(b"HTTP/1.1 200 ")
    wait_until(lambda: server.metric("zoo_waiting_requests") == 0)


def test_a_full_queue_is_429_with_a_time(broken: Server) -> None:
    body = {"input": ["a b"] * 60, "model": "prompted"}
    with ThreadPoolExecutor(32) as pool:
        replies = list(pool.map(lambda _: broken.post("/v1/embeddings", body), range(96)))
    refused = [reply for reply in replies if reply.status == 429]
    assert {reply.status for reply in replies} == {200, 429}
    for reply in refused:
        assert 1 <= int(reply.headers["retry-after"]) <= 60
        openai_error(reply)
    for reply in replies:
        if reply.status == 200:
            assert len(reply.body["data"]) == 60
    assert broken.post("/v1/embeddings", body).status == 200


# Keys


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"authorization": "Bearer wrong"},
        {"authorization": KEY},
        {"authorization": f"Bearer {KEY}x"},
        {"authorization": f"Basic {KEY}"},
        {"authorization": "Bearer"},
    ],
)
def test_a_missing_or_wrong_key_is_401(guarded: Server, headers: dict[str, str]) -> None:
    reply = guarded.post("/v1/embeddings", {"model": "minilm", "input": TEXT}, **headers)
    assert reply.status == 401 and "Bearer" in reply.headers["www-authenticate"]
    assert KEY not in openai_error(reply)
    assert guarded.post("/embed", {"inputs": TEXT}, **headers).status == 401
    assert guarded.post("/v2/rerank", {"query": "a", "documents": ["a"]}, **headers).status == 401
    assert guarded.get("/v1/models", **headers).status == 401


def test_the_key_opens(guarded: Server) -> None:
    reply = guarded.post("/v1/embeddings", {"model": "minilm", "input": TEXT}, **BEARER)
    assert reply.status == 200


def test_two_keys_are_refused(guarded: Server) -> None:
    lines = [
        "GET /v1/models HTTP/1.1",
        "Host: localhost",
        f"Authorization: Bearer {KEY}",
        "Authorization: Bearer wrong",
        "Connection: close",
    ]
    for order in (lines, [*lines[:2], lines[3], lines[2], lines[4]]):
        answer = guarded.exchange("\r\n".join([*order, "", ""]).encode())
        assert re.match(rb"HTTP/1.1 (400|401) ", answer)


def test_probes_need_no_key(guarded: Server) -> None:
    assert guarded.get("/health").status == 200
    assert guarded.get("/ready").status == 200


# Logs and failures


def test_logs_are_json_without_texts(server: Server) -> None:
    server.post("/embed", {"inputs": SECRET})
    server.post("/embed", {"inputs": [SECRET, "word " * 400]})
    server.post("/embed", {"inputs": SECRET, "prompt_name": SECRET})
    server.post("/run/classify", {"inputs": [SECRET], "model": "minilm"})
    server.post("/embed", json.dumps({"inputs": SECRET}).encode() + b"}")
    # Before it serves, the command tells its progress, how much depends on the machine.
    lines = server.log().splitlines()
    while not lines[0].startswith("{"):
        del lines[0]
    assert len(lines) > 5 and SECRET not in server.log()
    assert [line for line in lines if not isinstance(json.loads(line), dict)] == []


def test_a_failure_in_the_model_is_of_its_requests_only(broken: Server) -> None:
    expected = broken.post("/predict", {"inputs": "a b"}).body

    def send(number: int) -> Reply:
        return broken.post("/predict", {"inputs": "a j" if number % 4 == 0 else "a b"})

    with ThreadPoolExecutor(16) as pool:
        replies = list(pool.map(send, range(32)))
    for number, reply in enumerate(replies):
        if number % 4 == 0:
            assert reply.status == 424
            assert reply.body == {"error": "Inference failed", "error_type": "Backend"}
        else:
            assert reply.status == 200
            for row, wanted in zip(reply.body, expected, strict=True):
                assert row["label"] == wanted["label"]
                assert abs(row["score"] - wanted["score"]) < 1e-6
    reply = broken.post("/run/classify", {"inputs": "a j"})
    assert reply.status == 500 and reply.body["error"]["code"] == "model_failure"
    assert "a j" not in one_line(reply.body["error"]["message"])
    assert broken.get("/health").status == 200


def break_word(path: Path, token: int) -> None:
    """Make the embedding of a token overflow in the first norm."""
    from safetensors.torch import load_file, save_file

    tensors = load_file(path)
    (name,) = [name for name, tensor in tensors.items() if len(tensor) == len(VOCABULARY)]
    tensors[name][token] = 3e38
    save_file(tensors, path)
