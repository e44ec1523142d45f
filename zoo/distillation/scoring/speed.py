"""Latency and throughput of a student and its teachers on the available backends."""

import logging
import statistics
from collections.abc import Sequence
from functools import partial

from zoo.checkpoint import Checkpoint
from zoo.errors import ZooError
from zoo.exporting.session import open_session
from zoo.inference import Session
from zoo.inference.bench import default_seq_len, random_batch, time_in_turn
from zoo.nn.devices import cuda_problem
from zoo.training.logging.scores import Speed

LOG = logging.getLogger("zoo")
BATCH_SIZE = 8  # rows of the batches of throughput
ITERATIONS = 20
SLOW_ITERATIONS = 5
SLOW = 0.5  # seconds per batch from which fewer batches are timed


def default_backends(*, graphs: bool) -> list[str]:
    """Return the backends to measure: ``cpu``, ``cuda`` if available, and ``onnx`` on request."""
    cuda = [] if cuda_problem() else ["cuda"]
    return ["cpu", *cuda, *(["onnx"] if graphs else [])]


def shared_seq_len(checkpoints: Sequence[Checkpoint]) -> int:
    """Return the number of tokens per row: 128, or the lowest limit of the models."""
    return min(default_seq_len(checkpoint) for checkpoint in checkpoints)


def measure_speeds(checkpoints: Sequence[Checkpoint], backends: Sequence[str]) -> list[list[Speed]]:
    """Return the speeds of each model; models take turns within each iteration."""
    # A backend that cannot run all models is left out, with a note.
    seq_len = shared_seq_len(checkpoints)
    columns = []
    for backend in backends:
        try:
            sessions = [open_session(checkpoint, backend) for checkpoint in checkpoints]
        except ZooError as error:
            LOG.info("speed on %s is not measured: %s", backend, error.what)
            continue
        latencies, rates = (
            _medians(checkpoints, sessions, rows, seq_len) for rows in (1, BATCH_SIZE)
        )
        columns.append(
            [
                Speed(
                    backend=session.backend,
                    device=session.device,
                    dtype=session.dtype,
                    latency=latency,
                    tokens_per_second=BATCH_SIZE * seq_len / seconds,
                )
                for session, latency, seconds in zip(sessions, latencies, rates, strict=True)
            ]
        )
    return [list(column) for column in zip(*columns, strict=True)] or [[] for _ in checkpoints]


def _medians(
    checkpoints: Sequence[Checkpoint], sessions: Sequence[Session], rows: int, seq_len: int
) -> list[float]:
    """Return the median seconds of a batch of each model."""
    runs = [
        partial(session.run, random_batch(checkpoint, rows, seq_len))
        for checkpoint, session in zip(checkpoints, sessions, strict=True)
    ]
    (first,) = zip(*time_in_turn(runs, 1), strict=True)
    iterations = ITERATIONS if sum(first) < SLOW else SLOW_ITERATIONS
    return [statistics.median(seconds) for seconds in time_in_turn(runs, iterations)]
