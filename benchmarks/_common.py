"""What every benchmark needs: rounds that alternate, the machine, and a table.

Contenders are timed in turn within each round, so that what else the machine does hits all of
them alike; ratios of medians are what counts. A benchmark compares the answers before it times.
"""

import gc
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path

LIMIT = 3600  # seconds after which a process is given up


@dataclass(frozen=True)
class Timing:
    """How long a contender took in each round.

    Attributes:
        seconds: wall time, a number a round.
        peak_mb: largest resident set of a process in MB, a number a round; empty within one.
    """

    seconds: list[float] = field(default_factory=list)
    peak_mb: list[float] = field(default_factory=list)

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)

    @property
    def best(self) -> float:
        return min(self.seconds)


def alternate(
    contenders: Mapping[str, Callable[[], object]], *, rounds: int, warm_up: int = 1
) -> dict[str, Timing]:
    """Time functions in turn, each round in another order, after unmeasured rounds.

    A contender that returns a ``Process`` is timed by what that measured.
    """
    timings = {name: Timing() for name in contenders}
    names = list(contenders)
    for turn in range(warm_up + rounds):
        shift = turn % len(names)
        for name in names[shift:] + names[:shift]:
            gc.collect()
            start = time.perf_counter()
            outcome = contenders[name]()
            seconds = time.perf_counter() - start
            if turn < warm_up:
                continue
            if isinstance(outcome, Process):
                timings[name].peak_mb.append(outcome.peak_mb)
                seconds = outcome.seconds
            timings[name].seconds.append(seconds)
        print(f"round {turn + 1} of {warm_up + rounds}", file=sys.stderr, flush=True)
    return timings


@dataclass(frozen=True)
class Process:
    """A finished process: its wall time, and its largest resident set."""

    seconds: float
    peak_mb: float


def run_process(argv: Sequence[str], env: Mapping[str, str] | None = None) -> Process:
    """Run a command to its end; one that fails, or runs for an hour, is an error."""
    with tempfile.TemporaryFile() as output:
        start = time.perf_counter()
        process = subprocess.Popen(
            argv, stdout=output, stderr=subprocess.STDOUT, env={**os.environ, **(env or {})}
        )
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - start
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            output.seek(0)
            sys.exit(f"{' '.join(argv)} failed:\n{output.read().decode(errors='replace')}")
    unit = 1 if platform.system() == "Darwin" else 1024  # of ru_maxrss, in bytes
    return Process(seconds, usage.ru_maxrss * unit / 1e6)


def machine(threads: int | None = None) -> str:
    """Describe the machine in one line."""
    model = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.is_file():
        lines = cpuinfo.read_text("utf-8", "replace").splitlines()
        names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
        model = names[0] if names else model
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    used = f", {threads} threads used" if threads else ""
    return f"{model}, {count} cores{used}, {platform.system()} {platform.release()}"


def versions(*packages: str) -> str:
    """Name Python's version and those of packages."""
    found = [f"{name} {metadata.version(name)}" for name in packages]
    return ", ".join([f"Python {platform.python_version()}", *found])


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Lay out a table in Markdown; the first column is text, the others are numbers."""
    rule = ["---", *["---:"] * (len(header) - 1)]
    return "\n".join("| " + " | ".join(row) + " |" for row in [header, rule, *rows])


def compare(timings: Mapping[str, Timing], ours: str) -> str:
    """Return a table of medians, and of how many times as fast ``ours`` is as each other."""
    base = timings[ours]
    memory = any(timing.peak_mb for timing in timings.values())
    header = ["", "median s", "best s", f"{ours} is faster by (medians)", "(best)"]
    rows = []
    for name, timing in timings.items():
        ratios = (timing.median / base.median, timing.best / base.best)
        row = [name, f"{timing.median:.3f}", f"{timing.best:.3f}", *(f"{r:.2f}x" for r in ratios)]
        peak = f"{max(timing.peak_mb):.0f}" if timing.peak_mb else ""
        rows.append([*row, peak] if memory else row)
    return table([*header, "peak RSS MB"] if memory else header, rows)
