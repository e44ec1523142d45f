"""Workers and servers that share weights and a port, and that are killed."""

import os
import signal
import threading
import time
from contextlib import suppress
from pathlib import Path

import httpx2

from tests.serving.conftest import KEY
from tests.serving.server import Server, child_processes, wait_until

TEXTS = {"inputs": "a b"}


def test_a_worker_that_is_killed_is_replaced(models: Path) -> None:
    with Server([models / "classifier"], "--workers", 2) as server:
        first, second = server.children()
        os.kill(first, signal.SIGKILL)
        wait_until(lambda: len(server.children()) == 2 and first not in server.children(), 60)
        assert second in server.children()
        for _ in range(20):
            assert server.post("/predict", TEXTS).status == 200
        workers = server.children()
        assert server.stop() == 0
        wait_until(lambda: not any(pid in child_processes(1) for pid in workers))


def test_the_workers_share_the_memory_of_the_weights(guarded: Server) -> None:
    bearer = {"authorization": f"Bearer {KEY}"}
    body = {"inputs": ["a cat"] * 4, "model": "minilm"}
    mapped: dict[int, tuple[int, int]] = {}

    def all_have_read_them() -> bool:
        assert guarded.post("/embed", body, **bearer, connection="close").status == 200
        for pid in guarded.children():
            mapped[pid] = mapped_bytes(pid, "minilm")
        return min(resident for resident, _ in mapped.values()) > 30e6

    wait_until(all_have_read_them, 60)
    assert len(mapped) == 2
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
            assert second.post("/predict", TEXTS).status == 200
    assert set(statuses) == {200}
    # Nothing is lost but what the killed server had begun, at most one request of each client.
    assert len(broken) <= len(clients)
    assert [begin for begin in broken if begin > killed + 1] == []


def test_a_server_that_starts_on_a_shared_port_takes_no_requests_yet(models: Path) -> None:
    from zoo.serving.server import Address, listen

    with (
        Server([models / "classifier"], "--reuse-port") as server,
        listen(Address("127.0.0.1", server.address[1], reuse_port=True)),
    ):
        for _ in range(20):
            answer = httpx2.get(f"{server.url}/health", timeout=20)
            assert answer.status_code == 200
