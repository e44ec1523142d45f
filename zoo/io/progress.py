"""Progress bars on standard error, if it is a terminal."""

import contextlib
import sys
from collections.abc import Callable, Iterator

from zoo.io.terminal import escape_controls

Advance = Callable[[int], None]

_enabled = True


def enable_progress(enabled: bool) -> None:
    """Enable or disable progress bars; enabled ones are shown only on a terminal."""
    global _enabled
    _enabled = enabled


def shows_progress() -> bool:
    """Return whether progress bars are enabled and standard error is a terminal."""
    return _enabled and sys.stderr.isatty()


@contextlib.contextmanager
def progress(label: str, total: int | None, *, bytes_: bool = False) -> Iterator[Advance]:
    """Yield a function that advances a progress bar; silent unless on a terminal."""
    if not shows_progress():
        yield lambda amount: None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )

    units = (DownloadColumn(), TransferSpeedColumn()) if bytes_ else (MofNCompleteColumn(),)
    bar = Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        *units,
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
    )
    with bar:
        task = bar.add_task(escape_controls(label), total=total)
        yield lambda amount: bar.advance(task, amount)
