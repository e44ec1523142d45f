"""Commands in child processes with limits on time and memory, for tests of hostile input."""

import os
import resource
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Limited:
    """A child that has ended.

    Attributes:
        returncode: exit status; negative for a signal.
        stdout, stderr: what it wrote.
        seconds: wall-clock time.
        peak_bytes: largest resident set size.
    """

    returncode: int
    stdout: str
    stderr: str
    seconds: float
    peak_bytes: int


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
        environment: added to this process's environment.
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
        stdout, stderr = child.communicate(stdin, timeout=seconds)
    except subprocess.TimeoutExpired:
        os.killpg(child.pid, 9)
        child.communicate()
        raise
    stderr, _, figures = stderr.rpartition("\0")
    code, peak = map(int, figures.split())
    return Limited(code, stdout, stderr, time.monotonic() - begin, peak * 1024)


# Waits for the command and reports its exit status and peak memory.
_MEASURED = """
import os, subprocess, sys, resource
code = subprocess.run(sys.argv[1:]).returncode
peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
sys.stderr.write(f"\\0{code} {peak}")
"""
