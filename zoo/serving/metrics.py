"""Metrics in Prometheus' format, of all processes of a server together."""

import functools
from typing import TYPE_CHECKING

from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    generate_latest,
)
from prometheus_client.multiprocess import MultiProcessCollector

if TYPE_CHECKING:
    from zoo.serving.fair_queue import RowResult

__all__ = ["CONTENT_TYPE_LATEST", "Metrics"]

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)


class Metrics:
    """Counters of a server.

    Args:
        folder: where the processes of a server keep their counters; ``None`` for one process.
    """

    def __init__(self, folder: str | None) -> None:
        registry = CollectorRegistry()
        self.requests = Counter(
            "zoo_requests", "Requests that were answered.", ["path", "status"], registry=registry
        )
        self.seconds = Histogram(
            "zoo_request_seconds",
            "Time from the headers of a request to the end of its answer.",
            ["path"],
            buckets=SECONDS,
            registry=registry,
        )
        self.texts = Counter("zoo_texts", "Texts that were computed.", ["model"], registry=registry)
        self.tokens = Counter("zoo_tokens", "Tokens of these texts.", ["model"], registry=registry)
        self.waiting = Gauge(
            "zoo_waiting_requests",
            "Requests that wait or are being answered.",
            registry=registry,
            multiprocess_mode="livesum",
        )
        self.waiting_bytes = Gauge(
            "zoo_waiting_bytes",
            "Bytes of these requests and of their results.",
            registry=registry,
            multiprocess_mode="livesum",
        )
        self._registry = registry
        self._folder = folder
        # Counters by labels: finding them takes longer than counting.
        self._of_requests = functools.cache(self.requests.labels)
        self._of_seconds = functools.cache(self.seconds.labels)
        self._of_texts = functools.cache(self.texts.labels)
        self._of_tokens = functools.cache(self.tokens.labels)

    def count_request(self, path: str, status: int, seconds: float) -> None:
        """Count a request that was answered, by the path of its endpoint and its status."""
        self._of_requests(path, str(status)).inc()
        self._of_seconds(path).observe(seconds)

    def count_texts(self, model: str, results: "list[RowResult]") -> int:
        """Count the texts and tokens of an answer; return the tokens."""
        tokens = sum(len(result.item.encoded.ids) for result in results)
        self._of_texts(model).inc(len(results))
        self._of_tokens(model).inc(tokens)
        return tokens

    def write(self) -> bytes:
        """Return all metrics as text."""
        if self._folder is None:
            return generate_latest(self._registry)
        registry = CollectorRegistry()
        MultiProcessCollector(registry, path=self._folder)  # type: ignore[no-untyped-call]
        return generate_latest(registry)
