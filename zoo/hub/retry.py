"""Retries of requests after transient failures."""

import time
from collections.abc import Callable
from typing import TypeVar

from zoo.errors import SourceError, VerificationError

MAX_FAILURES = 4  # in a row
INITIAL_DELAY = 0.5  # seconds; doubled after every failure
MAX_RETRY_AFTER = 60.0  # seconds of waiting that a Hub may request in all


class TransientError(SourceError):
    """A failure after which a retry may succeed."""

    def __init__(self, what: str, hint: str = "", wait: float | None = None) -> None:
        super().__init__(what, hint)
        self.wait = wait


class Unreachable(SourceError):
    """Files that the cache does not have, without a connection to the Hub."""


class ConnectionFailed(Unreachable):
    """A connection could not be opened; it is not retried, so offline use fails at once."""


class DigestMismatch(VerificationError):
    """A download differs from the digest that the Hub publishes."""


Result = TypeVar("Result")


def with_retries(
    request: Callable[[], Result], progressed: Callable[[], bool] = lambda: False
) -> Result:
    """Return the result of a request, repeated after transient failures."""
    failures = 0
    waited = 0.0
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
