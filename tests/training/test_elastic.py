"""Elastic jobs: a run goes on with fewer processes, or says why it cannot."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests import warm
from tests.training.runs import command, finish, lines, options, records, wait_until

pytestmark = pytest.mark.usefixtures("shared_home")
FAMILY = "gpt"
# Dropout depends on the number of processes.
NO_DROPOUT = {"config": {"dropout": 0.0, "attention_dropout": 0.0, "embedding_dropout": 0.0}}


def test_rows_that_do_not_split_are_one_line(tmp_path: Path) -> None:
    run = str(tmp_path / "run")
    words = [FAMILY, *options(max_steps=2, eval_steps=2), "-o", run, "--auto-resume"]
    assert finish(*words, "--max-time", "0.001s").returncode == 0
    done = warm.in_processes(3, "pretrain", *words, "--device", "cpu")
    assert done.returncode == 2
    text = " ".join(done.stderr.split())
    assert text == "error: 4 rows a step do not split into 3 processes; start 2"


def start_agent(port: int, *arguments: str) -> "subprocess.Popen[str]":
    """Start the agent of a machine with one process, of at most two."""
    launcher = [sys.executable, "-m", "torch.distributed.run", "--nnodes", "1:2"]
    launcher += ["--nproc-per-node", "1", "--max-restarts", "2", "--rdzv-backend", "c10d"]
    launcher += ["--rdzv-endpoint", f"localhost:{port}", "--rdzv-conf", "last_call_timeout=20"]
    return subprocess.Popen(
        [*launcher, *command(*arguments)[1:]], stderr=subprocess.PIPE, text=True
    )


def is_open(port: int) -> bool:
    """Return whether a process listens on a port."""
    try:
        socket.create_connection(("localhost", port)).close()
    except ConnectionRefusedError:
        return False
    return True


def workers(agent: "subprocess.Popen[str]") -> list[int]:
    children = Path(f"/proc/{agent.pid}/task/{agent.pid}/children").read_text()
    return [int(pid) for pid in children.split()]


def kill(*pids: int) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


@pytest.mark.long
def test_a_run_goes_on_without_a_machine(tmp_path: Path) -> None:
    """A process is killed and starts again; later its machine is lost for good."""
    unbroken, run = tmp_path / "unbroken", tmp_path / "run"
    words = [FAMILY, *options(max_steps=500, eval_steps=250, save_steps=20, **NO_DROPOUT)]
    assert finish(*words, "-o", str(unbroken)).returncode == 0
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    words += ["-o", str(run), "--auto-resume"]
    first = start_agent(port, *words)
    with contextlib.ExitStack() as stack:
        stack.callback(first.kill)
        wait_until(lambda: is_open(port), first)  # The first one has the store.
        second = start_agent(port, *words)
        stack.callback(second.kill)
        wait_until(lambda: lines(run) >= 8, first)
        killed = workers(second)
        kill(*killed)
        wait_until(lambda: workers(second) not in ([], killed), first)
        line_count = lines(run)
        wait_until(lambda: lines(run) > line_count + 20, first)
        kill(second.pid, *workers(second))
        second.communicate()
        _, errors = first.communicate(timeout=300)
    assert first.returncode == 0, errors[-3000:]
    assert "was killed by SIGKILL" in errors
    line = f"{run} began with 2 processes and goes on with 1: each step has the same rows"
    assert line in errors
    expected = [record["loss"] for record in records(unbroken)]
    assert [record["loss"] for record in records(run)] == pytest.approx(expected, abs=1e-5)
