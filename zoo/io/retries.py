"""Retries of requests after transient failures."""

import time
from collections.abc import Callable
from typing import TypeVar

from zoo.errors import SourceError, VerificationError

MAX_FAILURES = 4  # in a row
INITIAL_DELAY = 0.5  # seconds; doubled after every failure
MAX_RETRY_AFTER = 60.0  # seconds of waiting that a server may request in all


class TransientError(SourceError):
    """A failure after which a retry may succeed."""

    def __init__(self, what: str, hint: str = "", wait: float | None = None) -> None:
        super().__init__(what, hint)
        self.wait = wait


class DigestMismatch(VerificationError):
    """A download differs from the digest that its source publishes."""


Result = TypeVar("Result")


def with_retries(
    request: Callable[[], Result],
    progressed: Callable[[], bool] = lambda: False,
    *,
    max_failures: int | None = None,
) -> Result:
    """Return the result of a request, repeated after transient failures.

    Args:
        request: makes the request.
        progressed: returns whether a failed request has done part of the work.
        max_failures: number of failures in a row that end it; by default ``MAX_FAILURES``.
    """
    failures = 0
    waited = 0.0
    while True:
        try:
            return request()
        except (TransientError, DigestMismatch) as error:
            failures = 1 if progressed() else failures + 1
            delay = error.wait if isinstance(error, TransientError) else None
            waited += delay or 0.0
            if failures >= (max_failures or MAX_FAILURES) or waited > MAX_RETRY_AFTER:
                raise
            time.sleep(INITIAL_DELAY * 2 ** (failures - 1) if delay is None else delay)
