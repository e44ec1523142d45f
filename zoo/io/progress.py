"""Progress of long phases on standard error."""

import contextlib
import logging
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from zoo.errors import ZooError
from zoo.io.files import count_reads
from zoo.io.terminal import escape_controls

LOG = logging.getLogger("zoo")
DELAY_SECONDS = 2.0  # The time until the bar of a phase is shown, and its items are counted.
FIRST_LINE_SECONDS = 5.0  # The time until the first line of a phase without a terminal.
LINE_SECONDS = 30.0  # The time between two lines without a terminal.
REFRESH_SECONDS = 0.2

Advance = Callable[[int], None]

# What phases are called; a label may go on with what the phase works on.
PHASES = {
    "checking": "tensors of a model are compared with those of its source, bit for bit",
    "cleaning": "texts pass the rules, or are compared with each other",
    "comparing": "an export is compared with torch",
    "embedding": "texts or tokens are embedded, to be searched or compared",
    "evaluating": "a model is evaluated on the rows of a table",
    "exporting": "the files of an export are written",
    "fetching": "files are downloaded",
    "generating": "texts are generated, to be compared with those of a table",
    "hashing": "digests of files are computed",
    "indexing": "vectors are added to an index",
    "making sentence pairs": "pairs of segments are drawn from a corpus",
    "measuring": "the layers of a model are quantized one by one",
    "reading": "files are read before anything is computed",
    "running": "a task of zoo run, or the model of an export in torch",
    "timing": "batches are timed",
    "tokenizing": "the texts of a corpus are tokenized",
    "training": "a model or a tokenizer is trained",
    "uploading": "files are uploaded",
    "writing": "tensors are written",
}

_enabled = True
# Phases of this process that have not ended, the innermost last.
_open_phases: list["Phase"] = []


def enable_progress(enabled: bool) -> None:
    """Enable or disable progress; enabled bars are shown only on a terminal."""
    global _enabled
    _enabled = enabled


def shows_progress() -> bool:
    """Return whether progress is enabled and standard error is a terminal."""
    return _enabled and sys.stderr is not None and sys.stderr.isatty()


@contextlib.contextmanager
def progress(
    label: str,
    total: int | None = None,
    *,
    unit: str = "",
    bytes_: bool = False,
    done: int = 0,
    items: Callable[[], Iterable[object]] | None = None,
) -> Iterator[Advance]:
    """Show the progress of a phase of any size, and yield a function that advances it.

    On a terminal and in a notebook it is a bar. Elsewhere it is a line once something is done,
    after five seconds at the earliest, and then a line every half minute. A phase that takes less
    than two seconds shows nothing.

    Args:
        label: what is done, which begins with one of ``PHASES``: the same phase has the same name
            in all commands.
        total: how much there is to do; ``None`` if that is unknown.
        unit: what is counted.
        bytes_: whether bytes are counted.
        done: how much an earlier process has done.
        items: yields all there is to do, once more: a phase that takes longer counts it meanwhile,
            for the total and the time left.
    """
    phase = Phase(escape_controls(label), total, "bytes" if bytes_ else unit, done)
    if not _enabled:
        yield phase.advance
        return
    _open_phases.append(phase)
    end = threading.Event()
    show = _log_lines
    if shows_progress():
        show = _show_bar
    elif in_notebook():
        show = _show_cell
    watcher = threading.Thread(target=show, args=(phase, end), name="progress", daemon=True)
    watcher.start()
    counter = None
    if items is not None and total is None:
        arguments = (phase, items, end)
        counter = threading.Thread(target=_count, args=arguments, name="count", daemon=True)
        counter.start()
    try:
        yield phase.advance
    finally:
        end.set()
        watcher.join()
        _open_phases.remove(phase)
        if _open_phases:
            _open_phases[-1].nested_seconds += phase.seconds()
        if counter is not None:
            counter.join()


@contextlib.contextmanager
def progress_of_files(label: str, files: Iterable[Path]) -> Iterator[None]:
    """Show the progress of a phase that reads files once, by the bytes that were read."""
    sizes = {str(path): path.stat().st_size for path in files if path.is_file()}
    with progress(label, sum(sizes.values()), bytes_=True) as advance, count_reads(sizes, advance):
        yield


class Phase:
    """A phase, and how much of it is done: a label, a total if it is known, and a unit."""

    def __init__(self, label: str, total: int | None, unit: str, done: int = 0) -> None:
        self.label = label
        self.total = total or None
        self.unit = unit
        self.done = done
        self.first = done  # What an earlier process has done, which says nothing about the rate.
        self.nested_seconds = 0.0  # Time of phases within this one, which says nothing either.
        self._began = time.monotonic()

    def seconds(self) -> float:
        """Return the time since the phase began."""
        return time.monotonic() - self._began

    def advance(self, amount: int) -> None:
        """Count what was done."""
        self.done += amount

    def figures(self) -> str:
        """Return count, rate and time left, or the time so far if the total is unknown."""
        seconds = self.seconds()
        done = self.done if self.total is None else min(self.done, self.total)
        if done <= self.first:
            return _duration(seconds)
        rate = (done - self.first) / max(seconds - self.nested_seconds, 1e-3)
        if self.unit == "bytes":
            scale, unit = next(pair for pair in BYTE_UNITS if max(done, self.total or 0) >= pair[0])
            count = f"{done / scale:,.1f}"
            if self.total is not None:
                count += f" of {self.total / scale:,.1f}"
            count += f" {unit}"
            speed = f"{rate / 1e6:,.1f} MB/s"
        else:
            count = f"{done:,}"
            if self.total is not None:
                count += f" of {self.total:,}"
            count = f"{count} {self.unit}".rstrip()
            if rate >= 10:
                speed = f"{rate:,.0f}/s"
            elif rate >= 0.1:
                speed = f"{rate:,.1f}/s"
            else:
                speed = f"{rate:,.2f}/s"
        if self.total is None:
            return f"{count}, {speed}, {_duration(seconds)}"
        return f"{count}, {speed}, {_duration((self.total - done) / rate)} left"

    def html(self) -> str:
        """Return a bar with the figures as HTML."""
        from zoo.io.page_text import html_text  # only notebooks show HTML

        position = ""
        if self.total is not None:
            position = f' value="{min(self.done, self.total)}" max="{self.total}"'
        text = html_text(f"{self.label}  {self.figures()}")
        return f"<progress{position}></progress> {text}"


BYTE_UNITS = ((1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (0, "bytes"))


def _duration(seconds: float) -> str:
    all_minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(all_minutes, 60)
    if hours:
        return f"{hours}:{minutes:02}:{seconds:02}"
    return f"{minutes}:{seconds:02}"


def _count(phase: Phase, items: Callable[[], Iterable[object]], end: threading.Event) -> None:
    """Count the items of a phase that takes long; what cannot be read has no total."""
    if end.wait(DELAY_SECONDS):
        return
    total = 0
    try:
        for _ in items():
            total += 1
            if end.is_set():
                return
    except (ZooError, OSError):  # The phase itself reports it.
        return
    phase.total = total or None


def _log_lines(phase: Phase, end: threading.Event) -> None:
    seconds_waited = FIRST_LINE_SECONDS
    if end.wait(FIRST_LINE_SECONDS):
        return
    while phase.done <= phase.first and seconds_waited < LINE_SECONDS:
        if end.wait(REFRESH_SECONDS):
            return
        seconds_waited += REFRESH_SECONDS
    _log(phase)
    while not end.wait(LINE_SECONDS):
        _log(phase)


def _log(phase: Phase) -> None:
    """Log the figures of a phase, unless a phase within it does."""
    if phase is _open_phases[-1]:
        LOG.info("%s: %s", phase.label, phase.figures())


def in_notebook() -> bool:
    """Return whether this process is the kernel of a notebook."""
    if "IPython" not in sys.modules:
        return False
    from IPython import get_ipython

    shell = get_ipython()
    return getattr(shell, "kernel", None) is not None


def _show_cell(phase: Phase, end: threading.Event) -> None:
    """Show a bar below the cell of a notebook, and remove it at the end."""
    if end.wait(DELAY_SECONDS):
        return
    from IPython.display import HTML, display

    handle = display(HTML(phase.html()), display_id=True)
    try:
        while not end.wait(REFRESH_SECONDS):
            handle.update(HTML(phase.html()))
    finally:
        handle.update(HTML(""))


def _show_bar(phase: Phase, end: threading.Event) -> None:
    if end.wait(DELAY_SECONDS):
        return
    with _bars() as bars:
        task = bars.add_task(phase.label, total=phase.total, figures=phase.figures())
        try:
            while not end.wait(REFRESH_SECONDS):
                bars.update(task, total=phase.total, completed=phase.done, figures=phase.figures())
        finally:
            bars.remove_task(task)


# The bars of phases within one another share a display, since a terminal has only one.
_lock = threading.Lock()
_display: Any = None
_number_of_bars = 0


@contextlib.contextmanager
def _bars() -> Iterator[Any]:
    """Yield the display of all bars, which begins with the first one and ends with the last one."""
    global _display, _number_of_bars
    with _lock:
        if not _number_of_bars:
            _display = contextlib.ExitStack()
            from rich.console import Console
            from rich.progress import BarColumn, Progress, TextColumn

            _display.bars = _display.enter_context(
                Progress(
                    TextColumn("{task.description}", markup=False),
                    BarColumn(bar_width=None),
                    TextColumn("{task.fields[figures]}", markup=False),
                    console=Console(stderr=True),
                    refresh_per_second=1 / REFRESH_SECONDS,
                    transient=True,
                    expand=True,
                )
            )
            _display.enter_context(log_above_bars())
        _number_of_bars += 1
        display = _display
    try:
        yield display.bars
    finally:
        with _lock:
            _number_of_bars -= 1
            if not _number_of_bars:
                display.close()


@contextlib.contextmanager
def log_above_bars() -> Iterator[None]:
    """Write log lines to the stream of a bar, which rich then moves down."""
    streams = {
        handler: handler.stream
        for handler in LOG.handlers
        if isinstance(handler, logging.StreamHandler) and not hasattr(handler, "baseFilename")
    }
    for handler in streams:
        handler.setStream(sys.stderr)  # rich has replaced sys.stderr
    try:
        yield
    finally:
        for handler, stream in streams.items():
            handler.setStream(stream)
