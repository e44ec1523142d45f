"""Requests that are made again when they fail in a way that may pass."""

import time
from collections.abc import Callable
from typing import TypeVar

from zoo.errors import SourceError, VerificationError

MAX_FAILURES = 4  # in a row
INITIAL_DELAY = 0.5  # seconds; doubled after every failure
MAX_RETRY_AFTER = 60.0  # seconds that a Hub may ask to wait, all its requests together


class TransientError(SourceError):
    """A failure that another try may not meet.

    Args:
        what: see ``ZooError``.
        hint: see ``ZooError``.
        wait: seconds that the Hub asks to wait, if it does.
    """

    def __init__(self, what: str, hint: str = "", wait: float | None = None) -> None:
        super().__init__(what, hint)
        self.wait = wait


class ConnectionFailed(SourceError):
    """No connection was made. Not tried again: who is offline should learn it at once."""


class DigestMismatch(VerificationError):
    """A download does not have the digest that the Hub publishes."""


Result = TypeVar("Result")


def with_retries(
    request: Callable[[], Result], progressed: Callable[[], bool] = lambda: False
) -> Result:
    """Return the result of a request, which is made again when it fails in a way that may pass.

    Args:
        request: raises ``TransientError`` or ``DigestMismatch`` where another try may succeed.
        progressed: whether the last try brought anything; failures are then counted anew.

    Raises:
        SourceError: it failed otherwise, too often, or the Hub asks to wait for too long.
        DigestMismatch: it failed so too often.
    """
    failures, waited = 0, 0.0
    while True:
        try:
            return request()
        except (TransientError, DigestMismatch) as error:
            failures = 1 if progressed() else failures + 1
            delay = error.wait if isinstance(error, TransientError) else None
            waited += delay or 0.0
            if failures >= MAX_FAILURES or waited > MAX_RETRY_AFTER:
                raise
            time.sleep(INITIAL_DELAY * 2 ** (failures - 1) if delay is None else delay)
