"""Servers in processes of their own, and many clients that send requests to them at once."""

import asyncio
import os
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

START_SECONDS = 300.0
TICKS = os.sysconf("SC_CLK_TCK")  # Units of CPU time in /proc, per second.


class Answers(NamedTuple):
    """What the clients have got.

    Attributes:
        bodies: bodies of the responses, in the order of the requests.
        latencies: seconds from each request to the end of its response.
        seconds: wall time of all requests.
    """

    bodies: list[bytes]
    latencies: list[float]
    seconds: float


@dataclass
class LoadTiming:
    """Measurements of a server under a load, by round.

    Attributes:
        cpu_seconds: CPU time of the server and its workers per text.
        rates: texts per second.
        latencies: seconds of all requests of all rounds.
    """

    cpu_seconds: list[float] = field(default_factory=list)
    rates: list[float] = field(default_factory=list)
    latencies: list[float] = field(default_factory=list)

    def add(self, cpu_seconds: float, texts: int, answers: Answers) -> None:
        """Add the measurements of a round."""
        self.cpu_seconds.append(cpu_seconds / texts)
        self.rates.append(texts / answers.seconds)
        self.latencies += answers.latencies

    @property
    def cpu_per_text(self) -> float:
        """Median CPU seconds per text."""
        return statistics.median(self.cpu_seconds)

    def percentile(self, percent: int) -> float:
        """Return a percentile of the latencies in seconds."""
        if len(self.latencies) < 2:
            return self.latencies[0]
        return statistics.quantiles(self.latencies, n=100, method="inclusive")[percent - 1]


class ServerProcess:
    """A server that a command starts.

    Args:
        command: program and arguments.
        port: port that it listens on.
        path: path of its embeddings, as OpenAI's.
        env: variables in addition to those of this process.
    """

    def __init__(
        self, command: Sequence[str], port: int, path: str, env: Mapping[str, str]
    ) -> None:
        self.command = command
        self.port = port
        self.path = path
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**os.environ, **env},
        )

    def wait(self, body: bytes) -> None:
        """Wait until the server answers a request."""
        limit = time.monotonic() + START_SECONDS
        while time.monotonic() < limit:
            if self.process.poll() is not None:
                sys.exit(f"{' '.join(self.command)} ended with {self.process.returncode}")
            with suppress(OSError, asyncio.IncompleteReadError, RuntimeError):
                self.send([body], 1)
                return
            time.sleep(0.2)
        sys.exit(f"{' '.join(self.command)} does not answer after {START_SECONDS:g} s")

    def send(self, bodies: Sequence[bytes], clients: int) -> Answers:
        """Send requests from a number of clients at once, each on one connection."""
        return asyncio.run(send_all(self.port, self.path, bodies, clients))

    def cpu_seconds(self) -> float:
        """Return the CPU time of the server and of its workers so far."""
        ticks = 0
        for pid in process_tree(self.process.pid):
            fields = process_fields(pid)
            if fields:
                ticks += sum(map(int, fields[11:15]))  # Own and of children, user and system.
        return ticks / TICKS

    def memory_mb(self) -> float:
        """Return the proportional set size of the server and its workers in MB."""
        kilobytes = 0
        for pid in process_tree(self.process.pid):
            with suppress(OSError):
                for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
                    if line.startswith("Pss:"):
                        kilobytes += int(line.split()[1])
        return kilobytes * 1024 / 1e6

    def stop(self) -> None:
        """End the server."""
        self.process.terminate()
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


async def send_all(port: int, path: str, bodies: Sequence[bytes], clients: int) -> Answers:
    """Send requests from a number of clients; a client sends its next one after an answer."""
    results: list[bytes] = [b""] * len(bodies)
    latencies = [0.0] * len(bodies)
    remaining = iter(range(len(bodies)))

    async def run_client() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 20)
        try:
            for number in remaining:
                begin = time.perf_counter()
                results[number] = await send_one(reader, writer, path, bodies[number])
                latencies[number] = time.perf_counter() - begin
        finally:
            writer.close()

    begin = time.perf_counter()
    await asyncio.gather(*(run_client() for _ in range(clients)))
    return Answers(results, latencies, time.perf_counter() - begin)


async def send_one(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, path: str, body: bytes
) -> bytes:
    """Send a request on an open connection, and return the body of the response."""
    head = (
        f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    )
    writer.write(head.encode() + body)
    await writer.drain()
    status, *headers = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    length = 0
    for header in headers:
        name, _, value = header.partition(":")
        if name.lower() == "content-length":
            length = int(value)
    content = await reader.readexactly(length)
    if status.split()[1] != "200":
        raise RuntimeError(f"{status}: {content[:300].decode(errors='replace')}")
    return content


def free_port() -> int:
    """Return a port of loopback that no process listens on."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
    return port


def process_tree(pid: int) -> Iterator[int]:
    """Yield the ids of a process and of those that it has started."""
    yield pid
    for folder in Path("/proc").glob("[0-9]*"):
        child = int(folder.name)
        fields = process_fields(child)
        if fields and int(fields[1]) == pid:
            yield from process_tree(child)


def process_fields(pid: int) -> list[str]:
    """Return the fields of /proc/PID/stat after the name, or nothing if the process has ended."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return []
