"""Termination signals: cleanup, repeated signals, and a closed terminal."""

import os
import pty
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

WAITS = """
import signal, sys, time
from zoo.io.signals import interrupt_on_termination
interrupt_on_termination()
try:
    print("ready", flush=True)
    time.sleep(30)
except KeyboardInterrupt:
    print("once", flush=True)
    time.sleep(0.5)  # removes what it wrote
    print("removed", flush=True)
    sys.exit(130)
"""
# `nohup pytest` has them ignored, which processes inherit
RESET = "import signal\nfor n in (signal.SIGHUP, signal.SIGQUIT): signal.signal(n, signal.SIG_DFL)"


def start(prepare: str = RESET) -> "subprocess.Popen[str]":
    process = subprocess.Popen(
        [sys.executable, "-c", f"{prepare}\n{WAITS}"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None and process.stdout.readline() == "ready\n"
    return process


@pytest.mark.long
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT])
def test_repeated_signals_do_not_interrupt_cleanup(number: int) -> None:
    process = start()
    process.send_signal(number)
    assert process.stdout is not None and process.stdout.readline() == "once\n"
    for other in (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
        process.send_signal(other)
    output, errors = process.communicate(timeout=30)
    assert (process.returncode, output, errors) == (130, "removed\n", "")


def test_ignored_hangup_does_not_end_the_process() -> None:
    process = start("import signal; signal.signal(signal.SIGHUP, signal.SIG_IGN)")
    process.send_signal(signal.SIGHUP)
    with pytest.raises(subprocess.TimeoutExpired):
        process.communicate(timeout=0.3)
    process.send_signal(signal.SIGTERM)
    assert process.communicate(timeout=30)[0] == "once\nremoved\n"


def test_closed_terminal(tmp_path: Path) -> None:
    """Printing fails from then on, which must not interrupt the cleanup."""
    code = f"{RESET}\nimport sys; sys.stderr = sys.stdout\n{WAITS}\n".replace(
        "sys.exit(130)", f"open({str(tmp_path / 'end')!r}, 'w').close()"
    )
    child, terminal = pty.fork()
    if not child:
        os.execv(sys.executable, [sys.executable, "-c", code])
    assert b"ready" in os.read(terminal, 100)
    os.close(terminal)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    assert (tmp_path / "end").exists()


def test_a_signal_after_the_work_keeps_the_exit_code() -> None:
    code = (
        "import signal, time; from zoo.io.signals import exit_on_signals; exit_on_signals(3); "
        "signal.raise_signal(signal.SIGTERM); time.sleep(30)"
    )
    before = time.monotonic()
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (3, b"")
    assert time.monotonic() - before < 20
