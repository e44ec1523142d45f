"""How long to go on trying when a Hub fails in a way that may pass."""

import time
from collections.abc import Callable
from typing import TypeVar

from zoo.errors import SourceError

FAILURES = 4  # in a row, with nothing received in between
FIRST_PAUSE = 0.5  # seconds; doubled after every failure
LONGEST_WAIT = 60.0  # seconds that a Hub may ask for, all its requests of one kind together


class Passing(SourceError):
    """A failure that may pass.

    Args:
        what: as for every error.
        remedy: as for every error.
        wait: seconds that the Hub asks to wait, if it does.
    """

    def __init__(self, what: str, remedy: str = "", wait: float | None = None) -> None:
        super().__init__(what, remedy)
        self.wait = wait


class Unreachable(Passing):
    """No connection came about: passing if there was one a moment ago."""


class Patience:
    """Counts failures in a row and adds up the waiting that was asked for."""

    def __init__(self) -> None:
        self.failures = 0
        self.waited = 0.0

    def pause(self, error: Passing) -> None:
        """Wait before the next try.

        Raises:
            Passing: the error itself, when there were too many, or the Hub asks for too long.
        """
        self.failures += 1
        seconds = FIRST_PAUSE * 2 ** (self.failures - 1) if error.wait is None else error.wait
        if error.wait is not None:
            self.waited += error.wait
        if self.failures >= FAILURES or self.waited > LONGEST_WAIT:
            raise error
        time.sleep(seconds)

    def progressed(self) -> None:
        """Something was received: begin counting again."""
        self.failures = 0


Result = TypeVar("Result")


def patiently(request: Callable[[], Result]) -> Result:
    """Make a request, again if it fails in a way that may pass.

    Raises:
        SourceError: it failed otherwise, or too often; or there is no connection at all, which
            is not tried again, because someone who is offline should learn it at once.
    """
    patience = Patience()
    while True:
        try:
            return request()
        except Unreachable:
            raise
        except Passing as error:
            patience.pause(error)
