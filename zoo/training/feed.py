"""Which rows a step looks at: a function of the step alone, computed one step ahead."""

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

from zoo.data.layout import Order
from zoo.data.random import generator
from zoo.objectives.base import Batch, Objective, Rows
from zoo.training.job import Job, corpus_rows
from zoo.training.ranks import Ranks


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
        first: the number of the first step.
        before: makes the batches of earlier steps.
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
        first: int = 0,
        before: "Feed | None" = None,
    ) -> None:
        self.first, self.before = first, before
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
        if self.before is not None and step < self.first:
            return self.before.make(step)
        return [self.objective.collate(list(self._rows(step, micro))) for micro in self.micros]

    def _rows(self, step: int, micro: range) -> Iterator:  # type: ignore[type-arg]
        for place in micro:
            rng = generator(self.seed, self.purpose, step, place)
            yield self.rows.row(self._index(step, place), rng)

    def _index(self, step: int, place: int) -> int:
        """Return which row stands at a place of a step."""
        if not self.objective.recurrent:
            return self._order[(step - self.first) * self.per_step + place]
        lane = len(self.rows) // self.per_step  # each place reads its own part, row after row
        return place * lane + step % lane

    def close(self) -> None:
        """Stop preparing."""
        self._pool.shutdown(wait=True, cancel_futures=True)


def training_feed(job: Job, ranks: Ranks, *, done: int = 0) -> Feed:
    """Return what a run learns from.

    Args:
        job: the run's.
        ranks: the processes that share it.
        done: how many steps were made before; what they looked at is not laid out again.

    Raises:
        UsageError: the corpus has less than a batch.
    """
    settings, before = job.settings, None
    if job.short is not None and done < settings.short_steps:
        before = _feed(job, ranks, job.short, short=True)
    return _feed(job, ranks, job.objective, first=settings.short_steps, before=before)


def _feed(
    job: Job,
    ranks: Ranks,
    objective: Objective,
    *,
    short: bool = False,
    first: int = 0,
    before: Feed | None = None,
) -> Feed:
    settings = job.settings
    return Feed(
        objective,
        corpus_rows(job, "train", settings.rows, short=short),
        seed=settings.seed,
        per_step=settings.rows,
        per_micro=settings.micro_rows(objective.length),
        rank=ranks.rank,
        ranks=ranks.count,
        first=first,
        before=before,
    )


def validation_batches(job: Job, ranks: Ranks) -> list[Batch]:
    """Return the batches of each validation, always of the whole length: losses compare.

    Raises:
        UsageError: nothing is held out.
    """
    rows = corpus_rows(job, "validation", 1)
    wanted = min(len(rows), job.settings.validation_rows)
    shared = wanted % ranks.count == 0  # else each process looks at all
    return Feed(
        job.objective,
        rows,
        seed=job.settings.seed,
        per_step=wanted,
        per_micro=job.settings.micro_rows(job.settings.length),
        rank=ranks.rank if shared else 0,
        ranks=ranks.count if shared else 1,
        purpose="validation",
    ).make(0)
