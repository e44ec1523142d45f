"""A request to stop, as a scheduler and a launcher deliver it: more than once."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.training.runs import lines, options, wait_until
from zoo.training import signals
from zoo.training.signals import Stop
from zoo.training.state import checkpoints


class Ended(Exception):
    """The process would have ended at once."""


@pytest.fixture(autouse=True)
def ends(monkeypatch: pytest.MonkeyPatch) -> None:
    def end(code: int) -> None:
        raise Ended(code)

    monkeypatch.setattr(os, "_exit", end)


def test_the_same_signal_right_after_the_first_is_no_second_one() -> None:
    stop = Stop()
    stop(signal.SIGUSR1, None)
    stop(signal.SIGUSR1, None)
    assert stop.asked


def test_another_signal_is_a_second_one() -> None:
    stop = Stop()
    stop(signal.SIGINT, None)
    with pytest.raises(Ended, match="130"):
        stop(signal.SIGTERM, None)


def test_the_same_signal_later_is_a_second_one(monkeypatch: pytest.MonkeyPatch) -> None:
    stop = Stop()
    stop(signal.SIGINT, None)
    monkeypatch.setattr(signals, "SAME", 0.0)
    with pytest.raises(Ended, match="130"):
        stop(signal.SIGINT, None)


def children(parent: int) -> list[int]:
    listed = subprocess.run(["ps", "-A", "-o", "pid=,ppid="], capture_output=True, text=True)
    pairs = [map(int, line.split()) for line in listed.stdout.splitlines()]
    return [pid for pid, ppid in pairs if ppid == parent]


@pytest.mark.usefixtures("shared_home")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGUSR1])
def test_processes_that_get_each_signal_twice_save(tmp_path: Path, number: int) -> None:
    """As SLURM signals all processes of a step, and `torchrun` hands its own on besides."""
    run = tmp_path / "run"
    long = {"steps": 1000, "save_every": 1000, "batch_tokens": 8192}  # both come in one step
    launcher = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"]
    launcher += ["--rdzv-backend", "c10d", "--rdzv-endpoint", "localhost:0"]
    launcher += ["--signals-to-handle", "SIGTERM,SIGINT,SIGUSR1", "-m", "zoo", "pretrain"]
    process = subprocess.Popen(
        [*launcher, "gpt", *options(**long), "--device", "cpu", "-o", str(run)],
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    wait_until(lambda: lines(run) >= 1, process)
    for receiver in (*children(process.pid), process.pid):
        os.kill(receiver, number)
    _, said = process.communicate(timeout=120)
    (step,) = checkpoints(run)
    assert said.count(f"step {step} of 1000 is saved") == 2, said
