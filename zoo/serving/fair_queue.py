"""Waiting requests, served in turn."""

from collections import OrderedDict, deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import asyncio

    from zoo.inference.processing.records import TextExample
    from zoo.inference.task import EncodedExample, Task
    from zoo.serving.models import ServedModel


class RowResult(NamedTuple):
    """Result of a text: its tokens, and the values that the task adds, with NumPy arrays."""

    item: "EncodedExample"
    added: dict[str, Any]


class WaitingText(NamedTuple):
    """A text that is tokenized.

    Attributes:
        item: the text with its tokens.
        cost: number of tokens in all rows that it is computed in.
    """

    item: "EncodedExample"
    cost: int


@dataclass(eq=False)
class Job:
    """The texts of a request that one task runs.

    Attributes:
        model: the model.
        task: the task; jobs of one task share batches.
        client: who sent the request; clients have equal shares of the engine.
        truncate: whether texts that are too long are cut; otherwise they are an error.
        done: set when all texts have a result, or one has failed.
        untokenized: texts that are not tokenized yet.
        first_row: number of the first text, on which the random numbers of generation depend.
        tokenized: texts that wait to be computed.
        results: result of each text, ``None`` for those that are not computed.
        error: what a text has failed with.
        is_cancelled: whether nobody waits for the result any more.
        open_results: number of texts without a result.
    """

    model: "ServedModel"
    task: "Task"
    client: str
    truncate: bool
    done: "asyncio.Future[list[RowResult]]"
    untokenized: "deque[TextExample]"
    first_row: int = 0
    tokenized: deque[WaitingText] = field(default_factory=deque)
    results: list[RowResult | None] = field(default_factory=list)
    error: Exception | None = None
    is_cancelled: bool = False
    open_results: int = 0

    def __post_init__(self) -> None:
        self.open_results = len(self.untokenized)
        self.results = [None] * self.open_results

    @property
    def next_row(self) -> int:
        """Number of the first text that is not tokenized."""
        return self.first_row + len(self.results) - len(self.untokenized)

    @property
    def is_waiting(self) -> bool:
        """Whether a text waits to be computed."""
        return bool(self.untokenized or self.tokenized) and self.is_live

    @property
    def is_live(self) -> bool:
        """Whether somebody waits for the result, and no text has failed."""
        return not self.is_cancelled and self.error is None

    def set_result(self, result: RowResult) -> None:
        """Keep the result of a text."""
        self.results[result.item.row_id - self.first_row] = result
        self.open_results -= 1


class FairQueue:
    """Jobs that wait. Clients take turns, and the requests of a client do."""

    def __init__(self) -> None:
        self._clients: OrderedDict[str, deque[Job]] = OrderedDict()

    def __bool__(self) -> bool:
        return bool(self._clients)

    @property
    def waiting_texts(self) -> int:
        """Number of texts that wait."""
        texts = 0
        for jobs in self._clients.values():
            for job in jobs:
                if job.is_live:
                    texts += len(job.untokenized) + len(job.tokenized)
        return texts

    def add(self, job: Job) -> None:
        """Add a job at the end of its client's jobs."""
        self._clients.setdefault(job.client, deque()).append(job)

    def next_turns(self) -> list[deque[Job]]:
        """Return the jobs of the task whose turn it is, by client; the next one is the first."""
        self._remove_idle_jobs()
        if not self._clients:
            return []
        first_jobs = next(iter(self._clients.values()))
        first_job = first_jobs[0]
        turns = []
        for jobs in self._clients.values():
            same_task = deque(job for job in jobs if job.task is first_job.task)
            if same_task:
                turns.append(same_task)
        first_jobs.rotate(-1)
        return turns

    def end_turn(self, clients: Iterable[str]) -> None:
        """Let clients wait until the others have had their turn."""
        for client in clients:
            self._clients.move_to_end(client)

    def clear(self) -> Iterator[Job]:
        """Remove and yield all jobs."""
        for jobs in self._clients.values():
            yield from jobs
        self._clients.clear()

    def _remove_idle_jobs(self) -> None:
        """Remove jobs of which no text waits."""
        for client, jobs in list(self._clients.items()):
            if all(job.is_waiting for job in jobs):
                continue
            waiting = deque(job for job in jobs if job.is_waiting)
            if waiting:
                self._clients[client] = waiting
            else:
                del self._clients[client]
