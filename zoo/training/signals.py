"""Being told to stop: the first signal ends the run in order, the second one at once.

A launcher hands on to each process what a scheduler may have sent to each already: the same signal
once more, right after the first, is no second one.
"""

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)
INTERRUPTED = 130
SAME = 2.0  # seconds within which a signal is the one that came before


class Stop:
    """Whether a signal has come."""

    def __init__(self) -> None:
        self.asked = False
        self._first = (0, 0.0)

    def __call__(self, number: int, frame: FrameType | None) -> None:
        """Handle a signal."""
        now = time.monotonic()
        if not self.asked:
            self.asked, self._first = True, (number, now)
        elif number != self._first[0] or now - self._first[1] > SAME:
            os._exit(INTERRUPTED)


@contextlib.contextmanager
def stopping() -> Iterator[Stop]:
    """Yield what says whether to stop; outside of the block, signals do what they did."""
    stop = Stop()
    before = {number: signal.signal(number, stop) for number in SIGNALS}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
