"""Batches that are computed at the same time, each on a part of a CPU's threads."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from contextvars import ContextVar, copy_context
from typing import Generic, Protocol, TypeVar

from zoo.inference.threads import environment_threads
from zoo.io.cores import usable_cores

Batch = TypeVar("Batch")
Result = TypeVar("Result")
Model = TypeVar("Model")
# Each of them has activations in memory.
MAX_CONCURRENT_BATCHES = 8
# For a second copy of the weights, in a runtime whose models have a fixed number of threads.
LARGEST_COPY = 1 << 29  # bytes of weights
BATCHES_OF_A_COPY = 4  # batches for each that run at the same time; loading takes time

# Whether the batch of the calling thread is one of several at the same time.
_is_concurrent = ContextVar("_is_concurrent", default=False)


class BatchSession(Protocol):
    """What ``compute_batches`` needs of a session; see ``zoo.inference.session.Session``."""

    def concurrent_batches(self, count: int) -> int:
        """Return how many of a number of batches to run at the same time."""

    def divide_threads(self, count: int) -> AbstractContextManager[Callable[[], None]]:
        """Divide the CPU's threads among batches that run at the same time."""


def compute_batches(
    session: BatchSession, compute: Callable[[Batch], Result], batches: Sequence[Batch]
) -> Iterator[Result]:
    """Yield the result of each batch, in order.

    Operators of a small batch are too short for several threads, which wait for each other at the
    end of each one. With one thread for each batch, they wait once, at the end of all batches.

    Args:
        session: the session that ``compute`` runs.
        compute: function that returns the result of a batch. It is called in several threads if the
            session supports that.
        batches: the batches.
    """
    count = session.concurrent_batches(len(batches))
    if count < 2:
        yield from map(compute, batches)
        return

    # An input of one batch does not need the module.
    from concurrent.futures import ThreadPoolExecutor

    def compute_one(batch: Batch) -> Result:
        _is_concurrent.set(True)
        return compute(batch)

    with (
        session.divide_threads(count) as enter_thread,
        ThreadPoolExecutor(count, initializer=enter_thread) as pool,
    ):
        # Context variables have the values of the caller, as without threads.
        futures = [pool.submit(copy_context().run, compute_one, batch) for batch in batches]
        try:
            for future in futures:
                yield future.result()
        finally:
            for future in futures:
                future.cancel()


class ModelCopies(Generic[Model]):
    """A model of a runtime with a fixed number of threads, and a copy of it for concurrent batches.

    The copy is loaded when there are enough batches for it.

    Args:
        model: the model, which uses all threads for each batch.
        load_copy: function that loads the copy, given the number of batches at the same time and
            the number of threads of each.
        threads: number of threads of the model; by default all cores.
    """

    def __init__(
        self, model: Model, load_copy: Callable[[int, int], Model], threads: int | None
    ) -> None:
        self._model = model
        self._copy: Model | None = None
        self._load_copy = load_copy
        self._threads = threads or environment_threads() or usable_cores()

    def concurrent_batches(self, count: int, stored_bytes: int) -> int:
        """Return how many of a number of batches to run at the same time.

        Args:
            count: number of batches.
            stored_bytes: size of the weights; large ones are not loaded twice.
        """
        concurrent = min(self._threads, MAX_CONCURRENT_BATCHES)
        least = concurrent if self._copy is not None else concurrent * BATCHES_OF_A_COPY
        return concurrent if count >= least and stored_bytes <= LARGEST_COPY else 1

    def require_copy(self, count: int) -> None:
        """Load the copy, for a number of batches at the same time, unless it is loaded."""
        if self._copy is None:
            self._copy = self._load_copy(count, self._threads // count)

    def of_batch(self) -> Model:
        """Return the model or the copy, whichever the batch of the calling thread is for."""
        if self._copy is not None and _is_concurrent.get():
            return self._copy
        return self._model
