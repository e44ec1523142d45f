"""Graceful shutdown on signals that a scheduler and a launcher send, also repeatedly."""

import os
import signal
import subprocess
import sys
from itertools import permutations
from pathlib import Path

import pytest

from tests.training.runs import lines, options, wait_until
from zoo.training import graceful_shutdown
from zoo.training.graceful_shutdown import StopSignal
from zoo.training.state.progress import list_checkpoints


class Ended(Exception):
    """Raised instead of ending the process."""


@pytest.fixture(autouse=True)
def ends(monkeypatch: pytest.MonkeyPatch) -> None:
    def end(code: int) -> None:
        raise Ended(code)

    monkeypatch.setattr(os, "_exit", end)


def test_the_same_signal_right_after_the_first_is_no_second_one() -> None:
    stop = StopSignal()
    stop(signal.SIGUSR1, None)
    stop(signal.SIGUSR1, None)
    assert stop.received


def test_another_signal_is_a_second_one() -> None:
    stop = StopSignal()
    stop(signal.SIGINT, None)
    with pytest.raises(Ended, match="130"):
        stop(signal.SIGTERM, None)


def test_the_same_signal_later_is_a_second_one(monkeypatch: pytest.MonkeyPatch) -> None:
    stop = StopSignal()
    stop(signal.SIGINT, None)
    monkeypatch.setattr(graceful_shutdown, "REPEAT", 0.0)
    with pytest.raises(Ended, match="130"):
        stop(signal.SIGINT, None)


@pytest.mark.parametrize("numbers", [*permutations((signal.SIGTERM, signal.SIGHUP))])
def test_the_end_of_a_session_is_one_request(numbers: tuple[int, int]) -> None:
    stop = StopSignal()
    for number in numbers:
        stop(number, None)
    assert stop.received


def children(parent: int, states: str = "RSD") -> list[int]:
    """Return the process ids of children in some states, in the letters of ``ps``."""
    listed = subprocess.run(["ps", "-A", "-o", "pid=,ppid=,stat="], capture_output=True, text=True)
    processes = [line.split() for line in listed.stdout.splitlines()]
    return [
        int(pid) for pid, ppid, state in processes if int(ppid) == parent and state[0] in states
    ]


def ended(parent: int) -> list[int]:
    """Return the process ids of children that ended and were not reaped yet."""
    return children(parent, "Z")


def launch(run: Path) -> "subprocess.Popen[str]":
    """Start two processes with slow steps, and wait for the first step."""
    long = {"max_steps": 1000, "save_steps": 1000, "global_batch_tokens": 8192}
    launcher = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"]
    launcher += ["--rdzv-backend", "c10d", "--rdzv-endpoint", "localhost:0"]
    launcher += ["--signals-to-handle", "SIGTERM,SIGINT,SIGUSR1", "-m", "zoo", "pretrain"]
    process = subprocess.Popen(
        [*launcher, "gpt", *options(**long), "--device", "cpu", "-o", str(run)],
        stderr=subprocess.PIPE,
        text=True,
    )
    wait_until(lambda: lines(run) >= 1, process)
    return process


@pytest.mark.usefixtures("shared_home")
@pytest.mark.long
@pytest.mark.parametrize("number", [signal.SIGUSR1, signal.SIGINT])
def test_processes_that_get_each_signal_twice_save(tmp_path: Path, number: int) -> None:
    """SLURM signals all processes of a step, and ``torchrun`` forwards its own signal."""
    process = launch(tmp_path / "run")
    for receiver in (*children(process.pid), process.pid):  # within one step
        os.kill(receiver, number)
    _, stderr = process.communicate(timeout=120)
    (step,) = list_checkpoints(tmp_path / "run")
    assert stderr.count(f"step {step} of 1000 is saved") == 1, stderr


@pytest.mark.long
@pytest.mark.usefixtures("shared_home")
@pytest.mark.parametrize("dead_rank", [0, 1])
def test_the_death_of_a_process_is_no_bug_of_another(tmp_path: Path, dead_rank: int) -> None:
    """The launcher, which has the store of the processes, is stopped and does not answer."""
    process = launch(tmp_path / "run")
    launcher = process.pid
    os.kill(launcher, signal.SIGSTOP)  # so that the other worker detects the failure
    workers = children(launcher)
    dead = workers.pop(dead_rank)
    os.kill(dead, signal.SIGKILL)
    wait_until(lambda: workers[0] in ended(launcher), process)
    os.kill(launcher, signal.SIGCONT)
    _, stderr = process.communicate(timeout=120)
    assert f"error: process {dead_rank} on" in stderr
    assert f"(pid {dead}) was killed by SIGKILL" in stderr
    assert "bug" not in stderr
