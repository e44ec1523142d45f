"""Handling of termination signals, and of output to a terminal that was closed."""

import contextlib
import os
import signal
import stat
import time
from types import FrameType

REPEAT = 2.0  # seconds within which another signal belongs to the same request to end
# Windows has neither SIGHUP, SIGQUIT, SIGUSR1 nor SIGKILL.
HANGUP = getattr(signal, "SIGHUP", None)
# Signals that a parent may have set to be ignored, as `nohup` does.
IGNORABLE = frozenset(
    getattr(signal, name) for name in ("SIGHUP", "SIGQUIT") if hasattr(signal, name)
)
# Signals that ask training to save and end; schedulers of clusters send SIGUSR1.
STOP_SIGNALS = (
    signal.SIGINT,
    signal.SIGTERM,
    *(getattr(signal, name) for name in ("SIGUSR1",) if hasattr(signal, name)),
    *sorted(IGNORABLE),
)


def interrupt_on_termination() -> None:
    """Make SIGTERM, SIGHUP and SIGQUIT interrupt the main thread as Ctrl-C does."""
    # The end of a session sends several signals at once. Only the first interrupts; the next ones
    # would interrupt the removal of temporary files
    handler = _Interrupt()
    for number in (signal.SIGTERM, *IGNORABLE):
        if not is_ignored(number):
            signal.signal(number, handler)


def exit_on_signals(code: int) -> None:
    """Make these signals end the process at once, after the work is done."""
    for number in (signal.SIGINT, signal.SIGTERM, *IGNORABLE):
        if not is_ignored(number):
            signal.signal(number, lambda *_: os._exit(code))


def is_ignored(number: int) -> bool:
    """Return ``True`` if the parent process set a signal to be ignored."""
    return number in IGNORABLE and signal.getsignal(number) == signal.SIG_IGN


def leave_lost_terminal() -> None:
    """Redirect standard output to the null device if its terminal was closed."""
    for stream in (1, 2):
        with contextlib.suppress(OSError):
            if stat.S_ISCHR(os.fstat(stream).st_mode) and not os.isatty(stream):
                os.dup2(os.open(os.devnull, os.O_WRONLY), stream)


class _Interrupt:
    def __init__(self) -> None:
        self._last = -REPEAT

    def __call__(self, number: int, frame: FrameType | None) -> None:
        if number == HANGUP:
            leave_lost_terminal()
        before = self._last
        self._last = time.monotonic()
        if self._last - before > REPEAT:
            raise KeyboardInterrupt
