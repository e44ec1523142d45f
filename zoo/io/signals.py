"""Signals that ask a process to end, and output to a terminal that is gone."""

import contextlib
import os
import signal
import stat
import time
from types import FrameType

REPEAT = 2.0  # seconds within which a further signal is part of the same request to end
# of these, a process may be told to take no notice when it is started, as by `nohup`
IGNORABLE = frozenset({signal.SIGHUP, signal.SIGQUIT})


def interrupt_on_termination() -> None:
    """Lets SIGTERM, SIGHUP and SIGQUIT interrupt the main thread as Ctrl-C does.

    A session that ends sends several of them at once. The first interrupts; those right after it
    would interrupt the removal of temporary files.
    """
    handler = _Interrupt()
    for number in (signal.SIGTERM, *IGNORABLE):
        if not is_ignored(number):
            signal.signal(number, handler)


def exit_on_signals(code: int) -> None:
    """Lets signals that interrupt end the process at once, for when nothing is left to be done.

    Args:
        code: the exit code that the process ends with in any case.
    """
    for number in (signal.SIGINT, signal.SIGTERM, *IGNORABLE):
        if not is_ignored(number):
            signal.signal(number, lambda *_: os._exit(code))


def is_ignored(number: int) -> bool:
    """Returns whether a process was started to take no notice of a signal."""
    return number in IGNORABLE and signal.getsignal(number) == signal.SIG_IGN


def leave_lost_terminal() -> None:
    """Sends what is printed nowhere if the terminal is gone, where printing would be an error."""
    for stream in (1, 2):
        with contextlib.suppress(OSError):
            if stat.S_ISCHR(os.fstat(stream).st_mode) and not os.isatty(stream):
                os.dup2(os.open(os.devnull, os.O_WRONLY), stream)


class _Interrupt:
    def __init__(self) -> None:
        self._last = -REPEAT

    def __call__(self, number: int, frame: FrameType | None) -> None:
        """Handles a signal."""
        if number == signal.SIGHUP:
            leave_lost_terminal()
        before, self._last = self._last, time.monotonic()
        if self._last - before > REPEAT:
            raise KeyboardInterrupt
