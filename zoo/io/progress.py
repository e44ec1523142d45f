"""Progress bars on standard error, when a person is watching it."""

import contextlib
import sys
from collections.abc import Callable, Iterator

from zoo.io.terminal import escape_controls

Advance = Callable[[int], None]


@contextlib.contextmanager
def progress(label: str, total: int | None, *, bytes_: bool = False) -> Iterator[Advance]:
    """Yield a function that advances a bar by so many units; silent unless on a terminal.

    Args:
        label: what is going on.
        total: how many units there are, or ``None`` if that is not known.
        bytes_: whether the units are bytes.
    """
    if not sys.stderr.isatty():
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
