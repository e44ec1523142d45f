"""Which rows a step looks at: a function of the step alone, computed one step ahead."""

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

from zoo.data.layout import Order
from zoo.data.random import generator
from zoo.objectives.base import Batch, Objective, Rows


class Feed:
    """The batches of a run.

    Args:
        objective: makes them.
        rows: the corpus, laid out.
        seed: of the run.
        per_step: rows in a step, over all ranks.
        per_micro: rows that a device computes at once.
        rank: which part of each step is this process's.
        ranks: how many parts there are.
        purpose: what the draws are for.
    """

    def __init__(
        self,
        objective: Objective,
        rows: Rows,
        *,
        seed: int,
        per_step: int,
        per_micro: int,
        rank: int = 0,
        ranks: int = 1,
        purpose: str = "train",
    ) -> None:
        self.objective, self.rows, self.seed, self.purpose = objective, rows, seed, purpose
        self.per_step = per_step
        share = -(-per_step // ranks)
        mine = range(per_step)[rank * share : (rank + 1) * share]
        self.micros = [mine[k : k + per_micro] for k in range(0, len(mine), per_micro)]
        self._order = Order(len(rows), seed)
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="feed")
        self._next: tuple[int, Future[list[Batch]]] | None = None

    def step(self, step: int) -> list[Batch]:
        """Return the micro-batches of a step, and begin with those of the next."""
        ready = self._next
        if ready is None or ready[0] != step:
            ready = (step, self._pool.submit(self.make, step))
        batches = ready[1].result()
        self._next = (step + 1, self._pool.submit(self.make, step + 1))
        return batches

    def make(self, step: int) -> list[Batch]:
        """Make the micro-batches of a step that are this process's."""
        return [self.objective.collate(list(self._rows(step, micro))) for micro in self.micros]

    def _rows(self, step: int, micro: range) -> Iterator:  # type: ignore[type-arg]
        for place in micro:
            rng = generator(self.seed, self.purpose, step, place)
            yield self.rows.row(self._index(step, place), rng)

    def _index(self, step: int, place: int) -> int:
        """Return which row stands at a place of a step."""
        if not self.objective.recurrent:
            return self._order[step * self.per_step + place]
        lane = len(self.rows) // self.per_step  # each place reads its own part, row after row
        return place * lane + step % lane

    def close(self) -> None:
        """Stop preparing."""
        self._pool.shutdown(wait=True, cancel_futures=True)
