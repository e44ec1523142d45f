"""Bounds on what requests may keep in memory while they are answered."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

from zoo.serving.errors import Overloaded, TooLarge

LONGEST_RETRY = 60  # seconds
REQUEST_BYTES = 16 << 10  # that a request takes in addition to its body and its results, about


class Admission:
    """Counts the bytes of requests that wait or are answered: their bodies and their results.

    Args:
        max_bytes: bytes of all requests together. A request is refused if others leave no room.
    """

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self.used_bytes = 0
        self.requests = 0
        self._last_seconds = 1.0

    @contextmanager
    def request(self) -> Iterator["Reservation"]:
        """Count a request until it is answered."""
        started = time.monotonic()
        reservation = Reservation(self)
        reservation.bytes = REQUEST_BYTES
        self.used_bytes += REQUEST_BYTES
        self.requests += 1
        try:
            yield reservation
            self._last_seconds = time.monotonic() - started
        finally:
            self.requests -= 1
            self.used_bytes -= reservation.bytes

    @property
    def retry_after(self) -> int:
        """Seconds after which there may be room again: as long as the last request took."""
        return max(1, min(round(self._last_seconds), LONGEST_RETRY))


class Reservation:
    """Bytes of one request.

    Attributes:
        bytes: the bytes that are counted.
    """

    def __init__(self, admission: Admission) -> None:
        self._admission = admission
        self.bytes = 0

    def add(self, size: int) -> None:
        """Count further bytes.

        Raises:
            TooLarge: there is no room for them, even without other requests.
            Overloaded: other requests leave no room for them.
        """
        admission = self._admission
        if self.bytes + size > admission.max_bytes:
            raise TooLarge("the result does not fit into memory; send fewer or shorter texts")
        if admission.used_bytes + size > admission.max_bytes:
            raise Overloaded(
                "the server is busy; try again later", retry_after=admission.retry_after
            )
        self.bytes += size
        admission.used_bytes += size
