"""Workers and servers that share weights and a port, and that are killed."""

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import httpx2
import pytest

from tests.inference.conftest import converted
from tests.serving.conftest import KEY
from tests.serving.server import Server, wait_until, worker_processes
from zoo.errors import UsageError
from zoo.serving.server import Address, listen

TEXTS = {"inputs": "a b"}
MANY_TEXTS = {"inputs": [["a b c d e f g h i j"]] * 1500}


def test_a_worker_that_is_killed_is_replaced(guarded: Server) -> None:
    bearer = {"authorization": f"Bearer {KEY}"}
    first, second = guarded.children()
    os.kill(first, signal.SIGKILL)
    wait_for_successor(guarded.process.pid, second, first)
    assert second in guarded.children()
    for _ in range(20):
        assert guarded.post("/predict", TEXTS, **bearer).status == 200


@pytest.mark.long
def test_a_server_ends_when_no_process_can_be_started(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    words = [sys.executable, "-m", "tests.serving.failing_workers", str(file)]
    with (tmp_path / "log").open("w+") as log:
        process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=log, text=True)
        try:
            assert process.stdout is not None
            url = process.stdout.readline().strip()
            assert int(httpx2.get(f"{url}/nodelay").text) != 0
            first, second = worker_processes(process.pid)
            file.unlink()
            os.kill(first, signal.SIGKILL)
            wait_until(lambda: failed_starts(tmp_path / "log") >= 3, 60)
            # The other process serves, and the first one is tried again and again.
            assert httpx2.get(url).text == "served"
            os.kill(second, signal.SIGKILL)
            assert process.wait(60) == 4
        finally:
            process.kill()
        log.seek(0)
        lines = log.read().splitlines()
    assert lines[-1].startswith("error: no process of the server can be started any more; ")
    pauses = []
    for line in lines[:-1]:
        fields = json.loads(line)
        if "restart_seconds" in fields:
            pauses.append(fields["restart_seconds"])
    assert pauses[:3] == [0.1, 0.2, 0.2]


@pytest.mark.long
def test_a_process_that_ends_soon_is_restarted_after_growing_pauses(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    words = [sys.executable, "-m", "tests.serving.failing_workers", str(file)]
    with (tmp_path / "log").open("w+") as log:
        process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=log, text=True)
        try:
            assert process.stdout is not None
            url = process.stdout.readline().strip()
            steady, unsteady = worker_processes(process.pid)
            for _ in range(3):
                os.kill(unsteady, signal.SIGKILL)
                unsteady = wait_for_successor(process.pid, steady, unsteady)
                wait_until_serving(url, unsteady)
                time.sleep(1)  # until the parent knows that it serves
            process.terminate()
            assert process.wait(60) == 0
        finally:
            process.kill()
        log.seek(0)
        ends = [json.loads(line) for line in log if "a process has ended" in line]
    assert [fields["restart_seconds"] for fields in ends] == [0.1, 0.2, 0.2]


def wait_for_successor(pid: int, other: int, ended: int) -> int:
    """Return the worker that replaces one that has ended, next to another."""
    wait_until(lambda: set(worker_processes(pid)) - {other, ended}, 60)
    (successor,) = set(worker_processes(pid)) - {other, ended}
    return successor


def wait_until_serving(url: str, pid: int) -> None:
    """Wait until a worker has answered a request."""
    wait_until(lambda: httpx2.get(f"{url}/pid").text == str(pid))


def failed_starts(log: Path) -> int:
    """Return how many processes have ended with the exit code 4."""
    return sum('"code":4' in line for line in log.read_text().splitlines())


@pytest.mark.long
def test_files_of_a_model_that_are_gone_end_the_server(models: Path, tmp_path: Path) -> None:
    checkpoint = converted(models / "classifier", tmp_path / "model")
    with Server([checkpoint.path], "--workers", 2) as server:
        first, second = server.children()
        shutil.rmtree(checkpoint.path)
        os.kill(first, signal.SIGKILL)
        wait_until(lambda: "cannot load its models" in server.log(), 60)
        assert server.post("/predict", TEXTS).status == 200
        os.kill(second, signal.SIGKILL)
        assert server.process.wait(120) == 2
        last_line = server.log().splitlines()[-1]
    assert last_line.startswith("error: no process of the server can be started any more; ")


def test_sigterm_ends_processes_that_are_starting(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "tests.serving.failing_workers", str(tmp_path), "--slow"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        wait_until(lambda: len(list(tmp_path.iterdir())) == 2, 60)
        workers = worker_processes(process.pid)
        process.terminate()
        output, errors = process.communicate(timeout=60)
    assert process.returncode == 0 and output == b"", errors
    assert b"Traceback" not in errors
    assert len(workers) == 2
    assert [pid for pid in workers if Path(f"/proc/{pid}").exists()] == []


def test_the_workers_share_the_memory_of_the_weights(guarded: Server) -> None:
    bearer = {"authorization": f"Bearer {KEY}"}
    body = {"inputs": ["a cat"] * 4, "model": "minilm"}
    mapped: dict[int, tuple[int, int]] = {}

    def all_have_read_them() -> bool:
        assert guarded.post("/embed", body, **bearer, connection="close").status == 200
        for pid in guarded.children():
            mapped[pid] = mapped_bytes(pid, "minilm")
        return len(mapped) == 2 and min(resident for resident, _ in mapped.values()) > 30e6

    wait_until(all_have_read_them, 60)
    for resident, proportional in mapped.values():
        assert proportional < 0.6 * resident


def mapped_bytes(pid: int, part: str) -> tuple[int, int]:
    """Return the resident and the proportional size of mapped weights, by a part of their path."""
    resident = 0
    proportional = 0
    is_weights = False
    for line in Path(f"/proc/{pid}/smaps").read_text().splitlines():
        name, _, value = line.partition(":")
        if "-" in line.split(maxsplit=1)[0]:
            is_weights = part in line and line.endswith(".safetensors")
        elif is_weights and name == "Rss":
            resident += int(value.split()[0]) * 1024
        elif is_weights and name == "Pss":
            proportional += int(value.split()[0]) * 1024
    return resident, proportional


def test_a_port_is_shared_where_both_say_so() -> None:
    with listen(Address("127.0.0.1", 0, reuse_port=True)) as first:
        first.listen()
        port = first.getsockname()[1]
        listen(Address("127.0.0.1", port, reuse_port=True)).close()
        with pytest.raises(UsageError, match=f"cannot listen on 127.0.0.1:{port}"):
            listen(Address("127.0.0.1", port))


@pytest.mark.long  # two servers start, and requests are sent for seconds
def test_two_servers_share_a_port_and_one_is_killed(models: Path) -> None:
    model = models / "classifier"
    statuses: list[int] = []
    broken: list[float] = []
    ended = threading.Event()

    def send(url: str) -> None:
        while not ended.is_set():
            begin = time.monotonic()
            try:
                statuses.append(httpx2.post(f"{url}/predict", json=TEXTS, timeout=60).status_code)
            except httpx2.HTTPError:
                broken.append(begin)

    with Server([model], "--reuse-port") as first:
        port = first.address[1]
        # A server that is starting takes no requests yet.
        with listen(Address("127.0.0.1", port, reuse_port=True)):
            for _ in range(20):
                assert httpx2.get(f"{first.url}/health", timeout=20).status_code == 200
        with Server([model], "--reuse-port", port=port) as second:
            clients = [threading.Thread(target=send, args=(first.url,)) for _ in range(4)]
            for client in clients:
                client.start()
            wait_until(lambda: len(statuses) > 50)
            killed = time.monotonic()
            first.kill()
            count = len(statuses)
            with suppress(AssertionError):
                wait_until(lambda: len(statuses) > count + 50)
            ended.set()
            for client in clients:
                client.join()
            assert len(statuses) > count + 50
            # SIGTERM finishes what was begun.
            with ThreadPoolExecutor(4) as pool:
                answers = [pool.submit(second.post, "/predict", MANY_TEXTS) for _ in range(4)]
                wait_until(lambda: second.metric("zoo_waiting_requests") >= 4)
                assert second.stop(signal.SIGTERM) == 0
                for answer in answers:
                    reply = answer.result()
                    assert reply.status == 200 and len(reply.body) == len(MANY_TEXTS["inputs"])
    assert set(statuses) == {200}
    # Nothing is lost but what the killed server had begun, at most one request of each client.
    assert len(broken) <= len(clients)
    assert [begin for begin in broken if begin > killed + 1] == []
