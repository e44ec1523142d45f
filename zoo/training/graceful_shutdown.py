"""Signal handling during training: the first signal saves and ends, a second one ends at once."""

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from types import FrameType

from zoo.io.signals import (
    HANGUP,
    REPEAT,
    STOP_SIGNALS,
    is_ignored,
    leave_lost_terminal,
)

INTERRUPTED = 130


class StopSignal:
    """A signal handler that records the first signal."""

    # A launcher forwards a signal to each process that a scheduler may have sent to each already,
    # and the end of a session sends SIGTERM and SIGHUP together. A repetition right after the first
    # signal therefore does not count as a second one.

    def __init__(self) -> None:
        self.received = False
        self._first_number = 0
        self._first_time = 0.0

    def __call__(self, number: int, frame: FrameType | None) -> None:
        """Handle a signal."""
        if number == HANGUP:
            leave_lost_terminal()
            number = signal.SIGTERM
        now = time.monotonic()
        if not self.received:
            self.received = True
            self._first_number = number
            self._first_time = now
        elif number != self._first_number or now - self._first_time > REPEAT:
            os._exit(INTERRUPTED)


@contextlib.contextmanager
def handle_signals() -> Iterator[StopSignal]:
    """Install the handler, yield it, and restore the previous handlers."""
    stop = StopSignal()
    previous_handlers = {}
    for number in STOP_SIGNALS:
        if not is_ignored(number):
            previous_handlers[number] = signal.signal(number, stop)
    try:
        yield stop
    finally:
        for number, handler in previous_handlers.items():
            signal.signal(number, handler)
