"""The benchmark of servers: what clients measure, and that wrong answers end it."""

import asyncio
import json
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest

from benchmarks import serve
from benchmarks._http_load import Answers, LoadTiming, ServerProcess, send_all


class Echo(BaseHTTPRequestHandler):
    """Answers with the length of each text as its embedding."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        rows = [{"index": k, "embedding": [len(text)]} for k, text in enumerate(body["input"])]
        content = json.dumps({"data": rows[::-1]}).encode()
        self.send_response(200 if body["input"] != ["wrong"] else 500)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:
        """Write nothing."""


@pytest.fixture
def port() -> Iterator[int]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Echo) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server.server_address[1]
        server.shutdown()
        thread.join()


def test_requests_are_answered_in_their_order(port: int) -> None:
    bodies = [serve.request(["a" * number, "b"]) for number in range(50)]
    answers = asyncio.run(send_all(port, "/v1/embeddings", bodies, clients=7))
    vectors = [serve.embeddings(body) for body in answers.bodies]
    assert vectors == [[[number], [1]] for number in range(50)]
    assert len(answers.latencies) == 50
    assert 0 < max(answers.latencies) <= answers.seconds


def test_percentiles_and_medians_are_of_all_rounds() -> None:
    timing = LoadTiming()
    timing.add(2.0, 10, Answers([], [0.1] * 99, 5.0))
    timing.add(4.0, 10, Answers([], [0.1], 5.0))
    timing.add(3.0, 10, Answers([], [9.1], 2.0))
    assert timing.cpu_per_text == pytest.approx(0.3)
    assert timing.rates == [2.0, 2.0, 5.0]
    assert timing.percentile(50) == pytest.approx(0.1)
    assert timing.percentile(99) < 9.1


def test_other_embeddings_end_the_benchmark(monkeypatch: pytest.MonkeyPatch) -> None:
    content = json.dumps({"data": [{"index": 0, "embedding": [0.5]}]}).encode()
    server = ServerProcess.__new__(ServerProcess)
    monkeypatch.setattr(
        ServerProcess, "send", lambda self, bodies, clients: Answers([content] * 2, [0.1], 0.1)
    )
    same = {serve.TORCH: np.full((2, 1), 0.5)}
    assert serve.check_answers({serve.STARLETTE: server}, ["a", "b"], same) == 0
    with pytest.raises(SystemExit, match=r"the embeddings differ by 1\.0e-01"):
        serve.check_answers(
            {serve.STARLETTE: server}, ["a", "b"], {serve.TORCH: np.full((2, 1), 0.4)}
        )


def timing(cpu_seconds: float) -> LoadTiming:
    timing = LoadTiming()
    timing.add(cpu_seconds, 1, Answers([], [0.1], 1.0))
    return timing


def test_ratios_are_of_plain_batches_and_of_infinity() -> None:
    timings = {serve.TORCH: timing(0.006), serve.INFINITY: timing(0.018)}
    measurement = serve.Measurement(timings, {serve.TORCH: [0.004, 0.005, 0.9]})
    assert measurement.of_plain(serve.TORCH) == pytest.approx(1.2)
    *_, torch_row, infinity_row = serve.case_table(measurement).splitlines()
    assert [cell.strip() for cell in torch_row.split("|")[2:5]] == ["6.00", "1.20", "0.33"]
    assert [cell.strip() for cell in infinity_row.split("|")[2:5]] == ["18.00", "", "1.00"]


def test_a_record_replaces_the_row_of_its_load(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "results.json"
    other = {"benchmark": "another", "script": "`another`"}
    file.write_text(json.dumps({"rows": [other]}))
    monkeypatch.setattr(serve, "RESULTS", file)
    names = (serve.TORCH, serve.ONNX, serve.INT8)
    memory = dict.fromkeys((*names, serve.INFINITY), 300.0)
    for milliseconds in (8, 5):
        timings = {name: timing(milliseconds / 1e3) for name in names}
        timings[serve.INFINITY] = timing(0.02)
        serve.record({serve.USUAL: serve.Measurement(timings, {})}, memory)
    timings[serve.STARLETTE] = timings.pop(serve.INFINITY)
    memory[serve.STARLETTE] = 200.0
    serve.record({serve.Case(8, 32): serve.Measurement(timings, {})}, memory)
    first, row, many = json.loads(file.read_text())["rows"]
    assert first == other
    assert many["benchmark"] == "embeddings over HTTP, 8 clients, 32 texts a request (MiniLM)"
    assert many["peer"] == "sentence-transformers, Starlette: 20.0 ms, 200 MB"
    assert "chart" not in many
    assert row["benchmark"] == "embeddings over HTTP, 32 clients, 1 text a request (MiniLM)"
    assert row["ratio"] == "4.0, 4.0, 4.0 times as fast"
    assert row["peer"] == "infinity-emb: 20.0 ms, 300 MB"
    assert row["chart"][0]["zoo_value"] == 5.0
    assert set(row) == {"benchmark", "zoo", "peer", "ratio", "script", "chart"}


def test_quick_loads_are_three(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["serve", "--quick"])
    assert serve.parse_options().cases == list(serve.QUICK_CASES)
    monkeypatch.setattr(sys, "argv", ["serve"])
    cases = serve.parse_options().cases
    assert len(cases) == 8 and cases[0] == serve.Case(1, 1) and cases[-1] == serve.Case(128, 32)
    monkeypatch.setattr(sys, "argv", ["serve", "--record", "--sides", serve.TORCH])
    with pytest.raises(SystemExit):
        serve.parse_options()


@pytest.mark.long
def test_all_servers_are_measured(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--clients", "2", "--texts", "1", "--count", "16", "--rounds", "1"]
    monkeypatch.setattr(sys, "argv", ["serve", *words])
    serve.main()
    rows = [
        line.split("|")[1].strip() for line in capsys.readouterr().out.splitlines() if "|" in line
    ]
    names = [serve.TORCH, serve.ONNX, serve.INT8, serve.STARLETTE]
    assert rows == ["server", "---", *names, "server", "---", *names]
