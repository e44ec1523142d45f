"""Commands in subprocesses with limits on time and memory."""

import contextlib
import os
import resource
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Limited:
    """Result of a subprocess.

    Attributes:
        returncode: exit status; negative for a signal.
        stdout, stderr: its output.
        seconds: wall-clock time.
        peak_bytes: maximum resident set size of one process.
        peak_total_bytes: maximum memory of all processes together, shared pages counted once,
            sampled five times a second.
    """

    returncode: int
    stdout: str
    stderr: str
    seconds: float
    peak_bytes: int
    peak_total_bytes: int


def run_limited(
    command: Sequence[object],
    *,
    seconds: float = 60,
    address_space: int | None = None,
    cwd: Path | None = None,
    stdin: str = "",
    **environment: str,
) -> Limited:
    """Run a command, with its own limits, and measure its peak memory.

    Args:
        command: program and arguments; ``zoo`` as the first word is this interpreter's ``-m zoo``.
        seconds: the command is killed after this time, and the test fails.
        address_space: limit in bytes, as ``ulimit -v`` sets it.
        cwd: working directory.
        stdin: standard input.
        environment: variables added to the environment.
    """
    words = [str(word) for word in command]
    if words[0] == "zoo":
        words[:1] = [sys.executable, "-m", "zoo"]

    def limit() -> None:
        if address_space is not None:
            resource.setrlimit(resource.RLIMIT_AS, (address_space, address_space))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))

    begin = time.monotonic()
    child = subprocess.Popen(
        [sys.executable, "-c", _MEASURED, *words],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=cwd,
        env={**os.environ, **environment},
        preexec_fn=limit,
        start_new_session=True,
        text=True,
    )
    try:
        with _sampled_memory(child.pid) as totals:
            stdout, stderr = child.communicate(stdin, timeout=seconds)
    except subprocess.TimeoutExpired:
        os.killpg(child.pid, 9)
        child.communicate()
        raise
    stderr, _, figures = stderr.rpartition("\0")
    code, peak = map(int, figures.split())
    seconds = time.monotonic() - begin
    return Limited(code, stdout, stderr, seconds, peak * 1024, max(totals))


@contextlib.contextmanager
def _sampled_memory(session: int) -> Iterator[list[int]]:
    """Yield a list of samples of the memory of a session's processes."""
    totals, ended = [0], threading.Event()

    def sample() -> None:
        while not ended.wait(0.2):
            totals.append(sum(map(_proportional_bytes, _processes(session))))

    thread = threading.Thread(target=sample, daemon=True)
    thread.start()
    try:
        yield totals
    finally:
        ended.set()
        thread.join()


def _processes(session: int) -> Iterator[Path]:
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # the process has ended
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
            if int(fields[3]) == session:
                yield folder


def _proportional_bytes(process: Path) -> int:
    """Return the proportional set size of a process in bytes."""
    with contextlib.suppress(OSError):
        for line in (process / "smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    return 0


# Waits for the command and reports its exit status and peak memory.
_MEASURED = """
import os, subprocess, sys, resource
code = subprocess.run(sys.argv[1:]).returncode
peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
sys.stderr.write(f"\\0{code} {peak}")
"""
