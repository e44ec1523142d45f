"""Being told to stop: the first signal ends the run in order, the second one at once."""

import contextlib
import os
import signal
from collections.abc import Iterator
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)
INTERRUPTED = 130


class Stop:
    """Whether a signal has come."""

    def __init__(self) -> None:
        self.asked = False

    def __call__(self, number: int, frame: FrameType | None) -> None:
        """Handle a signal."""
        if self.asked:
            os._exit(INTERRUPTED)
        self.asked = True


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
