"""Start-up time and memory of a session, measured in a process of its own."""

import re
import subprocess
import sys
import time
from pathlib import Path

import msgspec

from zoo.errors import ZooError


class StartupSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of the process that is measured."""

    path: str
    backend: str  # see ``load_session``
    dtype: str | None = None
    threads: int | None = None
    batch_size: int  # number of rows
    seq_len: int  # number of tokens per row
    new_tokens: int = 0  # number of tokens to generate after each row; 0 for a forward pass


class Startup(msgspec.Struct, frozen=True):
    """Measurements of a process that ran one batch."""

    seconds: float  # wall time from the start of the process to its end
    peak_bytes: int  # its peak resident set size; 0 where the platform does not report it


def measure_startup(settings: StartupSettings) -> Startup:
    """Open a session in a new process, run one batch, and return what that took."""
    # The process opens the session and runs one batch, or generates from one: ``python -m
    # zoo.exporting.startup SETTINGS``, where SETTINGS is a JSON object of ``StartupSettings``.
    argv = [sys.executable, "-m", __name__, msgspec.json.encode(settings).decode()]
    start = time.perf_counter()
    process = subprocess.run(argv, capture_output=True, text=True, check=False)
    seconds = time.perf_counter() - start
    if process.returncode:
        reason = (process.stderr.strip().splitlines() or ["no output"])[-1]
        raise ZooError(f"a process that opens {settings.path} on {settings.backend}: {reason}")
    return Startup(seconds, int(process.stdout))


def main() -> None:
    """Run one batch, or generate from it, and print the peak resident set size in bytes."""
    from zoo.checkpoint import load_checkpoint
    from zoo.exporting.session import open_session
    from zoo.inference.bench import random_batch, repeatable_run

    settings = msgspec.json.decode(sys.argv[1], type=StartupSettings)
    checkpoint = load_checkpoint(Path(settings.path))
    session = open_session(
        checkpoint, settings.backend, dtype=settings.dtype, threads=settings.threads
    )
    rows = settings.batch_size
    new_tokens = settings.new_tokens
    batch = random_batch(checkpoint, rows, settings.seq_len, padding=not new_tokens)
    batch = {name: array for name, array in batch.items() if name in session.inputs}
    repeatable_run(session, batch, new_tokens)()
    print(peak_bytes())


def peak_bytes() -> int:
    """Return the peak resident set size of this process, and of its children that still run."""
    # 0 where it is not known.
    # What ``getrusage`` says begins with the size of the process that started this one
    own_status = Path("/proc/self/status")
    if own_status.is_file():
        total = _high_water(own_status)
        for children_of_thread in Path("/proc/self/task").glob("*/children"):
            for process in children_of_thread.read_text().split():
                total += _high_water(Path("/proc") / process / "status")
        return total
    try:
        import resource
    except ImportError:  # Windows
        return 0
    unit = 1 if sys.platform == "darwin" else 1024  # unit of ru_maxrss in bytes
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def _high_water(status: Path) -> int:
    """Return the peak resident set size in a status file of Linux, 0 if it has none."""
    try:
        text = status.read_text()
    except OSError:  # The process has ended.
        return 0
    match = re.search(r"^VmHWM:\s*(\d+) kB", text, re.MULTILINE)
    return 0 if match is None else int(match[1]) * 1024


if __name__ == "__main__":
    main()
