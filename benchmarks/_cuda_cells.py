"""Processes of ``benchmarks.cuda``, each of which measures one side of one job by itself.

A cell compiles and warms up at the same time as others. It then says so, waits for its turn, and
takes time while nothing else runs.
"""

import contextlib
import json
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeAlias

READY = "ready for the measurement"
# Seconds that are kept for the measurement of a cell that is ready.
RESERVE = 6.0
ERROR_LENGTH = 200
Result = dict[str, Any]
Barrier = Callable[[], None]


@dataclass(frozen=True)
class Cell:
    """One side of one job.

    Attributes:
        section: name of the section, and of the module with its function ``measure``.
        name: the job, such as a workload.
        side: whose code runs.
        device: the device.
        tiny: whether the model is tiny, for a run on a CPU.
        folder: where models and results are.
    """

    section: str
    name: str
    side: str
    device: str
    tiny: bool
    folder: str

    @property
    def result_path(self) -> Path:
        slug = "".join(c if c.isalnum() else "-" for c in f"{self.section} {self.name} {self.side}")
        return Path(self.folder, f"{slug}.json")


Events: TypeAlias = "queue.Queue[CellProcess]"


class CellProcess:
    """A process that measures a cell; what it says goes to a queue."""

    def __init__(self, cell: Cell, module: str, events: Events) -> None:
        self.cell = cell
        self.is_ready = False
        self.has_ended = False
        self.was_killed = False
        argv = [sys.executable, "-m", "benchmarks._cuda_cells", module, json.dumps(asdict(cell))]
        self._errors = cell.result_path.with_suffix(".log")
        self._log = self._errors.open("w", encoding="utf-8")
        self.process = subprocess.Popen(
            argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log, text=True
        )
        self._events = events
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.strip() == READY:
                self.is_ready = True
                self._events.put(self)
        self.process.wait()
        self.has_ended = True
        self._events.put(self)

    def go(self) -> None:
        """Let it measure."""
        assert self.process.stdin is not None
        try:
            self.process.stdin.write("go\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            pass  # It has ended, with an error.

    def kill(self) -> None:
        """End the process if it has not ended."""
        if not self.has_ended:
            self.was_killed = True
            self.process.kill()
            self.process.wait()

    def result(self) -> Result:
        """End the process, and return what it measured or an error."""
        self.kill()
        if self.was_killed:
            return {"error": "no time left"}
        self._log.close()
        if self.process.returncode:
            lines = self._errors.read_text("utf-8").strip().splitlines() or ["failed"]
            return {"error": lines[-1][:ERROR_LENGTH]}
        result: Result = json.loads(self.cell.result_path.read_text("utf-8"))
        return result


def run_cells(
    cells: Sequence[Cell], module: str, *, until: float, at_once: int
) -> Iterator[tuple[Cell, Result]]:
    """Yield the result of each cell as soon as it has one, until the time is up.

    ``at_once`` cells compile and warm up together. Then they are measured one after the other.
    """
    events: Events = queue.Queue()
    started: list[CellProcess] = []
    try:
        warm_up(cells, module, started, events, until=until, at_once=at_once)
        for process in started:
            if process.is_ready:
                process.go()
                while not process.has_ended and time.monotonic() < until:
                    wait(events, until)
            yield process.cell, process.result()
        for cell in cells[len(started) :]:
            yield cell, {"error": "no time left"}
    finally:
        for process in started:
            process.kill()


def warm_up(
    cells: Sequence[Cell],
    module: str,
    started: list[CellProcess],
    events: Events,
    *,
    until: float,
    at_once: int,
) -> None:
    """Start the processes of cells; return when they are ready, or have to be measured."""
    while True:
        busy = [process for process in started if not (process.is_ready or process.has_ended)]
        for cell in cells[len(started) :][: max(0, at_once - len(busy))]:
            busy.append(CellProcess(cell, module, events))
            started.append(busy[-1])
        limit = until - RESERVE * sum(process.is_ready for process in started)
        if not busy or time.monotonic() >= limit:
            break
        wait(events, limit)
    for process in busy:
        process.kill()


def wait(events: Events, limit: float) -> None:
    """Wait until a process says something, or for a second, but not longer than up to a time."""
    with contextlib.suppress(queue.Empty):
        events.get(timeout=max(0.0, min(1.0, limit - time.monotonic())))


def wait_for_turn() -> None:
    """Say that this process is ready, and return when it may measure."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available():
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
    print(READY, flush=True)
    if not sys.stdin.readline():
        sys.exit("the benchmark has ended")


def main(module: str, fields: Mapping[str, Any]) -> None:
    """Measure a cell in this process."""
    import importlib

    cell = Cell(**fields)
    result = importlib.import_module(module).measure(cell, wait_for_turn)
    cell.result_path.write_text(json.dumps(result), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1], json.loads(sys.argv[2]))
