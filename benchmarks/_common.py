"""Timing of alternating functions and processes, description of the machine, Markdown tables.

The functions are timed one after another in each round, so that other load on the machine affects
all of them alike; the results are ratios of medians. Benchmarks compare outputs before they measure
times.
"""

import gc
import json
import os
import platform
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any

from zoo.io.cores import usable_cores


@dataclass(frozen=True)
class Timing:
    """Measurements of one function, by round.

    Attributes:
        seconds: wall time per round.
        peak_mb: peak resident set size of the process per round, in MB; empty for functions that
            run in this process.
        cpu_seconds: CPU time of the process per round; empty for functions that run in this
            process.
    """

    seconds: list[float] = field(default_factory=list)
    peak_mb: list[float] = field(default_factory=list)
    cpu_seconds: list[float] = field(default_factory=list)

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)

    @property
    def best(self) -> float:
        return min(self.seconds)


def alternate(
    contenders: Mapping[str, Callable[[], object]],
    *,
    rounds: int,
    warm_up: int = 1,
    clock: Callable[[], float] = time.perf_counter,
    pause: float = 0.0,
) -> dict[str, Timing]:
    """Time functions in alternation, in a different order in each round.

    If a function returns a ``Process``, the time of the process is recorded.

    Args:
        contenders: functions by name.
        rounds: number of measured rounds.
        warm_up: number of rounds before them that are not measured.
        clock: clock in seconds; ``time.process_time`` leaves out what other programs take.
        pause: seconds before each call, until idle threads of the previous function stop spinning.
    """
    timings = {name: Timing() for name in contenders}
    names = list(contenders)
    for turn in range(warm_up + rounds):
        shift = turn % len(names)
        for name in names[shift:] + names[:shift]:
            gc.collect()
            time.sleep(pause)
            start = clock()
            outcome = contenders[name]()
            seconds = clock() - start
            if turn < warm_up:
                continue
            if isinstance(outcome, Process):
                timings[name].peak_mb.append(outcome.peak_mb)
                timings[name].cpu_seconds.append(outcome.cpu_seconds)
                seconds = outcome.seconds
            timings[name].seconds.append(seconds)
        print(f"round {turn + 1} of {warm_up + rounds}", file=sys.stderr, flush=True)
    return timings


@dataclass(frozen=True)
class Process:
    """Measurements of a finished process.

    Attributes:
        seconds: wall time.
        peak_mb: peak resident set size in MB.
        cpu_seconds: CPU time of the process and of its children, in user and system mode.
        exceeded: the bound that the process exceeded, so that it was killed; otherwise empty.
    """

    seconds: float
    peak_mb: float
    cpu_seconds: float
    exceeded: str = ""


@dataclass(frozen=True)
class Bounds:
    """The most that a process may take.

    Attributes:
        memory_mb: resident set size in MB.
        seconds: wall time.
    """

    memory_mb: float
    seconds: float

    def exceeded(self, pid: int, start: float) -> str:
        """Return the bound that a process exceeds, or an empty string."""
        if time.perf_counter() - start > self.seconds:
            return f"more than {self.seconds:g} s"
        argv = ["ps", "-o", "rss=", "-p", str(pid)]
        size = subprocess.run(argv, capture_output=True, text=True, check=False).stdout
        if int(size or 0) * 1024 / 1e6 > self.memory_mb:
            return f"more than {self.memory_mb / 1e3:g} GB"
        return ""


def run_process(
    argv: Sequence[str], env: Mapping[str, str] | None = None, *, bounds: Bounds | None = None
) -> Process:
    """Run a command and measure it; a failure is an error.

    Args:
        argv: the command.
        env: variables in addition to those of this process.
        bounds: a process that exceeds them is killed, which is not an error.
    """
    with tempfile.TemporaryFile() as output:
        start = time.perf_counter()
        process = subprocess.Popen(
            argv, stdout=output, stderr=subprocess.STDOUT, env={**os.environ, **(env or {})}
        )
        found: list[str] = []
        ended = threading.Event()

        def watch() -> None:
            while bounds is not None and not ended.wait(0.2):
                if problem := bounds.exceeded(process.pid, start):
                    found.append(problem)
                    with suppress(ProcessLookupError):  # it ended meanwhile
                        os.kill(process.pid, signal.SIGKILL)
                    return

        watcher = threading.Thread(target=watch)
        watcher.start()
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - start
        ended.set()
        watcher.join()
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode and not found:
            output.seek(0)
            sys.exit(f"{' '.join(argv)} failed:\n{output.read().decode(errors='replace')}")
    unit = 1 if platform.system() == "Darwin" else 1024  # unit of ru_maxrss in bytes
    cpu_seconds = usage.ru_utime + usage.ru_stime
    return Process(seconds, usage.ru_maxrss * unit / 1e6, cpu_seconds, *found)


def zoo(*words: object) -> str:
    """Run a command of the zoo and return what it prints; a failure is an error."""
    argv = [sys.executable, "-m", "zoo", *map(str, words)]
    process = subprocess.run(argv, capture_output=True, text=True, check=False)
    if process.returncode:
        sys.exit(f"{' '.join(argv)} failed:\n{process.stderr[-2000:]}")
    return process.stdout


class RunResults:
    """Results of single runs by name, kept in a file as they come, so that no run is repeated.

    Args:
        path: file of JSON lines, or ``None`` to keep results in memory only.
        settings: what results depend on, besides the name; results of other settings stay in the
            file and are not used.
    """

    def __init__(self, path: Path | None, settings: Mapping[str, object]) -> None:
        self.path = path
        self.settings = {name: str(value) for name, value in settings.items()}
        self.known: dict[str, Any] = {}
        text = path.read_text("utf-8") if path is not None and path.is_file() else ""
        whole = text[: text.rfind("\n") + 1]  # a run that was killed may have left half a line
        if path is not None and whole != text:
            path.write_text(whole, "utf-8")
        for name, made_with, result in map(json.loads, whole.splitlines()):
            if made_with == self.settings:
                self.known[name] = result

    def add(self, name: str, result: object) -> None:
        self.known[name] = result
        if self.path is not None:
            with self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps([name, self.settings, result]) + "\n")


def student(values: Sequence[float]) -> str:
    """Return half of the 95 % interval of a mean by Student's t, for a table."""
    from scipy import stats

    if len(values) < 2:
        return "-"
    reach = stats.t.ppf(0.975, len(values) - 1) * statistics.stdev(values) / len(values) ** 0.5
    return f"± {reach:.3f}"


def machine(threads: int | None = None) -> str:
    """Return a one-line description of the machine."""
    model = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.is_file():
        lines = cpuinfo.read_text("utf-8", "replace").splitlines()
        names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
        model = names[0] if names else model
    count = usable_cores()
    used = f", {threads} threads used" if threads else ""
    return f"{model}, {count} cores{used}, {platform.system()} {platform.release()}"


def versions(*packages: str) -> str:
    """Return the versions of Python and of packages."""
    installed = [f"{name} {metadata.version(name)}" for name in packages]
    return ", ".join([f"Python {platform.python_version()}", *installed])


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table; the first column is left-aligned, the others right-aligned."""
    rule = ["---", *["---:"] * (len(header) - 1)]
    return "\n".join("| " + " | ".join(row) + " |" for row in [header, rule, *rows])


def cpu_table(
    sides: Mapping[str, Callable[[], object]],
    rounds: int,
    columns: Mapping[str, Mapping[str, str]] | None = None,
) -> str:
    """Time functions in alternation; return a table of their CPU time, and of more columns."""
    timings = alternate(sides, rounds=rounds, clock=time.process_time)
    first = next(iter(timings.values())).median
    more = columns or {}
    rows = [
        [
            name,
            f"{timing.median:.3f}",
            f"{timing.median / first:.2f}",
            *(column[name] for column in more.values()),
        ]
        for name, timing in timings.items()
    ]
    return table(["", "CPU s (median)", "ratio", *more], rows)


def compare(timings: Mapping[str, Timing], ours: str) -> str:
    """Return a table of median times and of the speed-up of ``ours`` over each other function."""
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
