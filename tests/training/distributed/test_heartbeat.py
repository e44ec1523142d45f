"""Heartbeats of processes over a store, with a silence of a fraction of a second."""

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from datetime import timedelta

import pytest
from torch.distributed import TCPStore  # type: ignore[attr-defined]

from zoo.training.distributed.heartbeat import Heartbeat

MODULE = "zoo.training.distributed.heartbeat"
SILENCE = 0.6
Start = Callable[[int, int], Heartbeat]


@pytest.fixture
def start() -> Iterator[Start]:
    """Return a function that starts the heartbeat of a rank."""
    store = TCPStore("127.0.0.1", 0, is_master=True, timeout=timedelta(seconds=10))
    heartbeats: list[Heartbeat] = []

    def start(rank: int, world_size: int) -> Heartbeat:
        heartbeat = Heartbeat(store, rank, world_size, interval=0.05, silence=SILENCE)
        heartbeat.start()
        heartbeats.append(heartbeat)
        return heartbeat

    yield start
    for heartbeat in heartbeats:
        heartbeat.stop()


def wait_for(text: str, capfd: pytest.CaptureFixture[str], seconds: float = 20) -> str:
    """Return what was written to standard error up to a text."""
    written = ""
    until = time.monotonic() + seconds
    while text not in written:
        assert time.monotonic() < until, written
        time.sleep(0.02)
        written += capfd.readouterr().err
    return written


def test_a_process_that_is_silent_is_named(start: Start, capfd: pytest.CaptureFixture[str]) -> None:
    first, second = start(0, 2), start(1, 2)
    for heartbeat in (first, second):
        heartbeat.begin_step(56)
    until = time.monotonic() + 10
    while first._peers[1].beat is None or first._peers[1].beat.step != 56:
        assert time.monotonic() < until
        time.sleep(0.02)
    second.stop()
    written = wait_for("has not finished step 56; it was not heard of for", capfd)
    assert written.startswith("warning: process 1 on ")
    assert first.is_silent(1, SILENCE)


@pytest.mark.long
def test_a_process_that_is_behind_is_named(start: Start, capfd: pytest.CaptureFixture[str]) -> None:
    first, second = start(0, 2), start(1, 2)
    second.begin_step(3)
    first.begin_step(4)
    assert "process 1 on " in wait_for("has not finished step 3 after", capfd)


@pytest.mark.long
def test_one_process_speaks(start: Start, capfd: pytest.CaptureFixture[str]) -> None:
    """Of those that are heard of, the one of the lowest rank; it names the main process, too."""
    start(1, 3)
    start(2, 3)
    written = wait_for("process 0 has not started after", capfd)
    time.sleep(SILENCE / 2)
    written += capfd.readouterr().err
    assert written.count("process 0") == 1


def test_nobody_is_named_in_time(start: Start, capfd: pytest.CaptureFixture[str]) -> None:
    first, second = start(0, 2), start(1, 2)
    for step in range(1, 5):
        first.begin_step(step)
        second.begin_step(step)
        time.sleep(SILENCE / 2)
    assert capfd.readouterr().err == ""
    assert first.ended_process() is None


def test_a_process_that_has_ended_is_named_by_its_number(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended = subprocess.Popen([sys.executable, "-c", "pass"])
    ended.wait()
    first = start(0, 2)
    with monkeypatch.context() as patch:
        patch.setattr(f"{MODULE}.os.getpid", lambda: ended.pid)
        start(1, 2)
    name = ended_process(first)
    assert name.startswith("process 1 on ") and name.endswith(f"(pid {ended.pid}) has ended")


def test_the_signal_of_a_process_is_known_on_all_machines(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Process 1 runs next to 0, which sees its end; 2 is on another machine."""
    first = start(0, 3)
    with monkeypatch.context() as patch:
        patch.setattr(f"{MODULE}.machine_id", lambda: "another machine")
        third = start(2, 3)
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        with monkeypatch.context() as patch:
            patch.setattr(f"{MODULE}.os.getpid", lambda: process.pid)
            start(1, 3)
        wait_until_heard(first, 1)
        process.send_signal(signal.SIGKILL)
        for heartbeat in (first, third):
            name = ended_process(heartbeat)
            assert name.endswith(f"(pid {process.pid}) was killed by SIGKILL")


@pytest.mark.long
def test_a_stopped_process_is_told_from_one_that_cannot_be_reached(
    start: Start, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """A process of another machine writes no heartbeats, and its port is open, then shut."""
    first = start(0, 2)
    monkeypatch.setattr(f"{MODULE}.is_loopback", lambda address: False)
    with monkeypatch.context() as patch:
        patch.setattr(f"{MODULE}.machine_id", lambda: "another machine")
        second = start(1, 2)
    wait_until_heard(first, 1)
    port = second._port
    second._port = None
    second.stop()
    wait_for("answers, so the process is stopped or hangs", capfd)
    assert port is not None
    port.close()
    wait_for(": it has ended", capfd)
    monkeypatch.setattr(f"{MODULE}.probe", lambda address, port: "unreachable")
    wait_for("cannot be reached; it is down, or the connection is lost", capfd)


def wait_until_heard(heartbeat: Heartbeat, rank: int) -> None:
    until = time.monotonic() + 10
    while heartbeat._peers[rank].beat is None:
        assert time.monotonic() < until
        time.sleep(0.02)


def ended_process(heartbeat: Heartbeat) -> str:
    until = time.monotonic() + 10
    while (name := heartbeat.ended_process()) is None:
        assert time.monotonic() < until
        time.sleep(0.02)
    return name
