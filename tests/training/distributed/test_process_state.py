"""The state of other processes, as the system and a connection show it."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from zoo.training.distributed.process_state import (
    LivenessPort,
    describe_end,
    machine_id,
    probe,
    read_process_state,
)

PROGRAM = """
import sys
from zoo.training.distributed.process_state import LivenessPort
port = LivenessPort("127.0.0.1")
print(port.address, port.port, flush=True)
sys.stdin.read()
"""


@pytest.fixture
def process() -> Iterator["subprocess.Popen[str]"]:
    """A process with a liveness port, whose address and number it prints."""
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    yield process
    process.kill()
    process.communicate()


def wait_for_letter(pid: int, letter: str) -> None:
    until = time.monotonic() + 20
    while (state := read_process_state(pid)) is None or state.letter != letter:
        assert time.monotonic() < until, state
        time.sleep(0.01)


@pytest.mark.parametrize(
    ("code", "text"),
    [
        ("import os; os.kill(os.getpid(), 9)", "was killed by SIGKILL"),
        ("import os; os.kill(os.getpid(), 11)", "was killed by SIGSEGV"),
        ("raise SystemExit(3)", "ended with exit code 3"),
    ],
)
def test_the_end_of_a_process_that_nobody_waited_for(code: str, text: str) -> None:
    ended = subprocess.Popen([sys.executable, "-S", "-c", code])
    wait_for_letter(ended.pid, "Z")
    state = read_process_state(ended.pid)
    assert state is not None and state.has_ended
    assert describe_end(state.wait_status) == text
    assert state.wait_status == os.waitpid(ended.pid, 0)[1]
    ended.returncode = 0
    assert read_process_state(ended.pid) is None


def test_a_stopped_process_still_answers_a_connection(process: "subprocess.Popen[str]") -> None:
    assert process.stdout is not None
    address, port = process.stdout.readline().split()
    assert probe(address, int(port)) == "exists"
    process.send_signal(signal.SIGSTOP)
    wait_for_letter(process.pid, "T")
    state = read_process_state(process.pid)
    assert state is not None and state.is_stopped
    assert probe(address, int(port)) == "exists"
    process.kill()
    process.wait()
    assert probe(address, int(port)) == "ended"


def test_a_port_takes_many_connections() -> None:
    port = LivenessPort("127.0.0.1")
    for _ in range(3):
        for _ in range(50):
            assert probe(port.address, port.port) == "exists"
        port.answer()
    port.close()


def test_a_machine_has_one_name() -> None:
    code = "from zoo.training.distributed.process_state import machine_id; print(machine_id())"
    output = subprocess.check_output([sys.executable, "-c", code], text=True)
    assert output.strip() == machine_id()
