"""A server in a process of its own, and requests to it."""

import json
import os
import queue
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import httpx2

COMMAND = (sys.executable, "-m", "zoo", "serve")
START_SECONDS = 120.0
STOP_SECONDS = 30.0
REQUEST_SECONDS = 120.0


class Reply(NamedTuple):
    """A response.

    Attributes:
        status: HTTP status.
        body: the decoded JSON, or the text if the response is not JSON.
        headers: names in lower case and values.
    """

    status: int
    body: Any
    headers: Mapping[str, str]


class Server:
    """A running ``zoo serve``; a context manager that stops it.

    Args:
        models: references of the models.
        options: more options.
        port: port; 0 for any free one.
        environment: variables in addition to those of this process.

    Attributes:
        url: address without a slash at the end.
        first_line: first line of standard output.
        logs: file with standard error.
    """

    def __init__(
        self, models: Sequence[Path | str], *options: object, port: int = 0, **environment: str
    ) -> None:
        self.logs = Path(tempfile.mkstemp(suffix=".log")[1])
        words = [*models, "--port", port, *options]
        with self.logs.open("w") as errors:
            self.process = subprocess.Popen(
                [*COMMAND, *(str(word) for word in words)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                env={**os.environ, **environment},
                text=True,
                start_new_session=True,
            )
        try:
            self.first_line = self._read_line(START_SECONDS)
        except BaseException:
            self.kill()
            raise
        self.url = self.first_line.rpartition(" at ")[2].strip()
        self.client = httpx2.Client(base_url=self.url, timeout=REQUEST_SECONDS, trust_env=False)

    def _read_line(self, seconds: float) -> str:
        """Return the first line of standard output; read on so that the pipe never fills."""
        lines: queue.Queue[str] = queue.Queue()

        def read() -> None:
            assert self.process.stdout is not None
            for line in self.process.stdout:
                lines.put(line)
            lines.put("")

        threading.Thread(target=read, daemon=True).start()
        try:
            line = lines.get(timeout=seconds)
        except queue.Empty:
            raise TimeoutError(f"no server after {seconds:g} s:\n{self.log()}") from None
        if not line:
            raise RuntimeError(f"the server ended:\n{self.log()}")
        return line

    def log(self) -> str:
        """Return what the server has written to standard error."""
        return self.logs.read_text("utf-8", "replace")

    @property
    def address(self) -> tuple[str, int]:
        """Host and port."""
        parts = urlsplit(self.url)
        assert parts.hostname is not None and parts.port is not None
        return parts.hostname, parts.port

    def get(self, path: str, **headers: str) -> Reply:
        """Send a GET request."""
        return to_reply(self.client.get(path, headers=headers))

    def post(self, path: str, body: object, **headers: str) -> Reply:
        """Send a JSON body, or bytes as they are, as a POST request."""
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        sent = {"content-type": "application/json", **headers}
        return to_reply(self.client.post(path, content=content, headers=sent))

    def connect(self) -> socket.socket:
        """Return a new connection, for requests that no client would send."""
        return socket.create_connection(self.address, timeout=REQUEST_SECONDS)

    def exchange(self, request: bytes) -> bytes:
        """Send bytes on a connection of their own, and return all that comes back."""
        with self.connect() as connection:
            with suppress(OSError):  # the server may answer and close before it has read all
                connection.sendall(request)
            parts = []
            with suppress(ConnectionResetError):
                while part := connection.recv(65536):
                    parts.append(part)
        return b"".join(parts)

    def metric(self, name: str) -> float:
        """Return the sum of a metric over its labels."""
        return sum(self.samples(name))

    def samples(self, name: str) -> Iterator[float]:
        """Yield the values of a metric, one for each combination of labels."""
        for line in self.client.get("/metrics").text.splitlines():
            if line.startswith((f"{name} ", f"{name}{{")):
                yield float(line.rpartition(" ")[2])

    def children(self) -> list[int]:
        """Return the process ids of the workers."""
        return worker_processes(self.process.pid)

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Send a signal, wait for the end, and return the exit status."""
        self.process.send_signal(number)
        return self.process.wait(STOP_SECONDS)

    def kill(self) -> None:
        """End the server and its workers at once."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(STOP_SECONDS)

    def __enter__(self) -> "Server":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.client.close()
        with suppress(ProcessLookupError, subprocess.TimeoutExpired):
            self.process.terminate()
            self.process.wait(STOP_SECONDS)
        self.kill()
        self.logs.unlink(missing_ok=True)


def to_reply(response: httpx2.Response) -> Reply:
    """Return the parts of a response that tests compare."""
    headers = {name.lower(): value for name, value in response.headers.items()}
    is_json = headers.get("content-type", "").startswith("application/json")
    body = response.json() if is_json and response.content else response.text
    return Reply(response.status_code, body, headers)


def child_processes(pid: int) -> list[int]:
    """Return the ids of the children of a process that have not ended."""
    children = []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # the process has ended
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
            if int(fields[1]) == pid and fields[0] != "Z":
                children.append(int(folder.name))
    return sorted(children)


def worker_processes(pid: int) -> list[int]:
    """Return the ids of the workers of a server, without the resource tracker of Python."""
    workers = []
    for child in child_processes(pid):
        with suppress(OSError):
            if b"spawn_main" in Path(f"/proc/{child}/cmdline").read_bytes():
                workers.append(child)
    return workers


def process_tree(pid: int) -> list[int]:
    """Return the ids of a process and of all that it has started."""
    tree = [pid]
    for child in child_processes(pid):
        tree += process_tree(child)
    return tree


def proportional_bytes(pid: int) -> int:
    """Return the memory of a process and its workers, pages shared by them counted once."""
    total = 0
    for member in process_tree(pid):
        with suppress(OSError):
            for line in Path(f"/proc/{member}/smaps_rollup").read_text().splitlines():
                if line.startswith("Pss:"):
                    total += int(line.split()[1]) * 1024
    return total


def wait_until(condition: Any, seconds: float = 30.0) -> None:
    """Wait for a condition, or fail.

    Args:
        condition: function that returns whether it holds.
        seconds: limit.
    """
    limit = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < limit, f"not within {seconds:g} s"
        time.sleep(0.02)
