"""The engine: one thread that runs the texts of all requests, in batches.

While a batch is computed, other requests arrive; the next batch is formed from all that wait and
all that the event loop is reading, so that no timer is needed. Texts of one task are chosen in turn
from all clients, up to a number of tokens; those of them that have about the length of the first
one are a batch. A long request is therefore split, and a short one waits for about one batch.
"""

import asyncio
import contextlib
import functools
import logging
import queue
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from zoo.errors import UsageError, ZooError
from zoo.inference.generation.task import GenerationTask
from zoo.inference.processing.records import TextExample
from zoo.inference.task import BatchTask
from zoo.serving.errors import RequestTimeout, TooLarge, Unavailable
from zoo.serving.fair_queue import FairQueue, Job, RowResult, WaitingText
from zoo.serving.stream_turns import ACTIVE_STREAMS, Stream, StreamEnd, StreamTurns

if TYPE_CHECKING:
    from zoo.inference.task import EncodedExample, Task
    from zoo.serving.models import ServedModel

LOG = logging.getLogger("zoo.serving")
Value = TypeVar("Value")

UNREAD_SECONDS = 10.0  # A stream that is not read for so long leaves its place to one that waits.
# Clients send their next requests after an answer, at about the same time. If few texts wait, the
# engine lets the event loop read what has arrived, as long as it brings more requests.
ENOUGH_TEXTS = 64
LOOP_TURNS = 4  # from bytes that have arrived to a job: they are read, and two tasks begin
MAX_WAITS = 8  # A batch waits for the event loop so often.
SIMPLE_TEXT = TextExample("a", location="a simple text")


@dataclass(eq=False)
class Call:
    """A function of a task that the engine runs by itself, not in a batch."""

    model: "ServedModel"
    task: "Task"
    function: Callable[[], Any]
    done: "asyncio.Future[Any]"
    is_cancelled: bool = False


@dataclass
class _Amount:
    """An amount of text."""

    texts: int = 0
    characters: int = 0

    def add(self, record: TextExample) -> None:
        """Add a text, or a pair of texts."""
        self.texts += 1
        self.characters += len(record.text) + len(record.pair or "")

    def reaches(self, limit: "_Amount") -> bool:
        """Return whether the amount is as large as another in a respect."""
        return self.texts >= limit.texts or self.characters >= limit.characters


# What is tokenized ahead; a single text may be longer. Tokens take more memory than their text, so
# that those of all requests that wait would be too many.
TOKENIZED_AHEAD = _Amount(256, 1 << 16)


class _Wake:
    """Makes the thread look at its streams again."""


class _Mark:
    """Shows that the event loop has read what had arrived."""


@dataclass
class _Finished:
    """What a turn of the engine has finished, for the event loop."""

    results: list[tuple["asyncio.Future[Any]", Any]] = field(default_factory=list)
    errors: list[tuple["asyncio.Future[Any]", Exception]] = field(default_factory=list)


class Engine:
    """Runs tasks for requests, in a thread of its own.

    Args:
        max_batch_tokens: number of tokens of a turn, which bounds how long a short request waits.
    """

    def __init__(self, max_batch_tokens: int) -> None:
        self.max_batch_tokens = max_batch_tokens
        self._arrivals: queue.SimpleQueue[Arrival] = queue.SimpleQueue()
        self._queue = FairQueue()
        self._calls: deque[Call] = deque()
        self._streams = StreamTurns()
        self._is_closing = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.Thread(target=self._run, name="zoo-engine", daemon=True)

    # Called by the event loop

    def start(self) -> None:
        """Start the thread; called in the event loop, to which results are delivered."""
        self._loop = asyncio.get_running_loop()
        self._thread.start()

    @property
    def is_alive(self) -> bool:
        """Whether the thread runs."""
        return self._thread.is_alive()

    async def close(self) -> None:
        """Finish what was begun, and end the thread."""
        self._arrivals.put(None)
        await asyncio.to_thread(self._thread.join)

    async def run(
        self,
        model: "ServedModel",
        task: "Task",
        records: "Sequence[TextExample]",
        *,
        client: str,
        truncate: bool,
        first_row: int = 0,
    ) -> list[RowResult]:
        """Return the result of each record; ``first_row`` is the number of the first one.

        Raises:
            RequestError: a text is too long.
            ZooError: a text is not valid for the task, or the model has failed.
        """
        if not records:
            return []
        self._require_thread()
        done: asyncio.Future[list[RowResult]] = asyncio.get_running_loop().create_future()
        job = Job(model, task, client, truncate, done, deque(records), first_row)
        self._arrivals.put(job)
        try:
            return await done
        finally:
            job.is_cancelled = True

    async def call(
        self, model: "ServedModel", task: "Task", function: Callable[[], Value]
    ) -> Value:
        """Return what a function of a task returns that the engine calls between two batches."""
        self._require_thread()
        done = asyncio.get_running_loop().create_future()
        call = Call(model, task, function, done)
        self._arrivals.put(call)
        try:
            value: Value = await done
            return value
        finally:
            call.is_cancelled = True

    async def stream(
        self,
        model: "ServedModel",
        task: GenerationTask,
        record: TextExample,
        row: int,
        *,
        client: str,
    ) -> AsyncIterator[str | StreamEnd]:
        """Yield pieces of the continuation of a text as they are generated, and the end."""
        self._require_thread()
        pieces = task.stream_text(record, row)
        stream = Stream(model, task, record, client, pieces, asyncio.Queue())
        self._arrivals.put(stream)
        try:
            while True:
                piece = await stream.unread.get()
                if isinstance(piece, Exception):
                    raise piece
                yield piece
                if isinstance(piece, StreamEnd):
                    return
                if stream.is_half_read:
                    self._wake()
        finally:
            stream.is_cancelled = True
            self._wake()

    def _require_thread(self) -> None:
        if not self.is_alive:
            raise Unavailable("the engine has stopped")

    def _wake(self) -> None:
        """Make the thread look at its streams again."""
        self._arrivals.put(_Wake())

    # Called by the thread

    def _run(self) -> None:
        try:
            while not self._is_idle:
                self._receive()
                finished = _Finished()
                self._run_calls(finished)
                self._run_batch(finished)
                self._deliver(finished)
                self._step_streams()
        finally:
            self._fail_all()

    @property
    def _is_idle(self) -> bool:
        """Whether the thread ends: the server is closing, and nothing is left to do."""
        return self._is_closing and not (self._queue or self._calls or self._streams)

    def _receive(self) -> None:
        """Take what has arrived; wait if there is nothing else to do."""
        has_work = bool(self._queue or self._calls)
        has_work = has_work or any(stream.can_step for stream in self._streams.active())
        if not has_work:
            with contextlib.suppress(queue.Empty):
                self._add(self._arrivals.get(timeout=self._seconds_until_timeout()))
        while not self._arrivals.empty():
            self._add(self._arrivals.get())
        texts = self._queue.waiting_texts
        for _ in range(MAX_WAITS):
            if not 0 < texts < ENOUGH_TEXTS:
                return
            self._call_soon(self._mark_after, LOOP_TURNS)
            new_texts = 0
            while not isinstance(arrival := self._arrivals.get(), _Mark):
                self._add(arrival)
                if isinstance(arrival, Job):
                    new_texts += arrival.open_results
            if new_texts == 0:
                return
            texts += new_texts

    def _add(self, arrival: "Arrival") -> None:
        if arrival is None:
            self._is_closing = True
        elif isinstance(arrival, Job):
            self._queue.add(arrival)
        elif isinstance(arrival, Stream):
            self._streams.add(arrival)
        elif isinstance(arrival, Call):
            self._calls.append(arrival)

    def _mark_after(self, turns: int) -> None:
        """Send a mark after some turns of the event loop, which calls this."""
        if turns == 0:
            self._arrivals.put(_Mark())
        else:
            asyncio.get_running_loop().call_soon(self._mark_after, turns - 1)

    def _run_calls(self, finished: _Finished) -> None:
        while self._calls:
            call = self._calls.popleft()
            if call.is_cancelled:
                continue
            try:
                finished.results.append((call.done, call.function()))
            except Exception as error:
                self._judge(call.model, call.task, error)
                finished.errors.append((call.done, error))
            return  # one a turn, so that batches take turns with them

    def _run_batch(self, finished: _Finished) -> None:
        turns = self._queue.next_turns()
        if not turns:
            return
        self._tokenize(turns, finished)
        choice = _take(turns, self.max_batch_tokens)
        if not choice:
            return
        groups = _group_by_length(choice)
        # The group of the text whose turn it is comes first.
        groups.sort(key=lambda group: choice[0] not in group)
        clients: dict[str, None] = {}
        while groups:
            group = groups.pop(0)
            clients.update(dict.fromkeys(job.client for job, _ in group))
            self._run_group(group)
            remaining_texts = sum(len(group) for group in groups)
            if remaining_texts < ENOUGH_TEXTS:
                # With texts that have arrived meanwhile, they make groups of less padding.
                break
        _put_back(choice, groups)
        self._queue.end_turn(clients)

    def _run_group(self, group: Sequence[tuple[Job, WaitingText]]) -> None:
        """Compute texts and deliver their results, so that clients send their next requests."""
        live_group = [(job, text.item) for job, text in group if job.is_live]
        if not live_group:
            return
        finished = _Finished()
        for job, results in self._compute(live_group):
            if isinstance(results, Exception):
                self._fail(job, results, finished)
                continue
            for result in results:
                job.set_result(result)
            if job.open_results == 0:
                finished.results.append((job.done, job.results))
        self._deliver(finished)

    def _tokenize(self, turns: Sequence["deque[Job]"], finished: _Finished) -> None:
        """Tokenize texts of jobs that have none left, all together."""
        portions = _portions(turns)
        if not portions:
            return
        records: list[TextExample] = []
        for _, portion in portions:
            records += portion
        try:
            items = portions[0][0].task.tokenize(records, 0)
        except Exception:
            # Which request it is shows when each is tokenized by itself.
            items = []
        start = 0
        for job, portion in portions:
            end = start + len(portion)
            try:
                job_items = items[start:end] or job.task.tokenize(portion, 0)
                self._add_tokenized(job, job_items)
            except Exception as error:
                self._fail(job, error, finished)
            start = end

    def _add_tokenized(self, job: Job, items: "Sequence[EncodedExample]") -> None:
        """Check the tokens of texts of a job, which are then ready to be computed."""
        first_row = job.next_row - len(items)
        for number, item in enumerate(items):
            row = item._replace(row_id=first_row + number)
            truncated = job.task.truncated(row)
            if truncated and not job.truncate:
                raise too_long(row, truncated, job.task)
            job.task.check(row)
            job.tokenized.append(WaitingText(row, _cost(job.task, row)))

    def _compute(
        self, batch: "Sequence[tuple[Job, EncodedExample]]"
    ) -> list[tuple[Job, list[RowResult] | Exception]]:
        """Return the results of a batch, for each job, or what the job failed with."""
        rows: dict[Job, list[EncodedExample]] = {}
        for job, item in batch:
            rows.setdefault(job, []).append(item)
        first_job = batch[0][0]
        model = first_job.model
        task = first_job.task
        try:
            results = _run_rows(task, [item for _, item in batch])
        except Exception as error:
            if len(rows) == 1:
                return [(first_job, self._judge(model, task, error))]
            return [(job, self._compute_alone(job, items)) for job, items in rows.items()]
        model.set_success(functools.partial(_compute, task, batch[0][1]))
        outcomes: dict[Job, list[RowResult]] = {job: [] for job in rows}
        for (job, _), result in zip(batch, results, strict=True):
            outcomes[job].append(result)
        return list(outcomes.items())

    def _compute_alone(
        self, job: Job, items: "Sequence[EncodedExample]"
    ) -> list[RowResult] | Exception:
        """Return the results of one job of a batch that has failed, or what it fails with."""
        try:
            results = _run_rows(job.task, items)
        except Exception as error:
            return self._judge(job.model, job.task, error)
        job.model.set_success(functools.partial(_compute, job.task, items[0]))
        return results

    def _judge(self, model: "ServedModel", task: "Task", error: Exception) -> Exception:
        """Log a failure of a request, and find out whether the model still works."""
        _log_failure(error)
        if not isinstance(error, UsageError):
            model.check_health(functools.partial(_compute_simple, task))
        return error

    def _fail(self, job: Job, error: Exception, finished: _Finished) -> None:
        job.error = error
        finished.errors.append((job.done, error))

    @property
    def _has_waiting_streams(self) -> bool:
        return len(self._streams) > ACTIVE_STREAMS

    def _seconds_until_timeout(self) -> float | None:
        """Return after how many seconds a stream that is not read loses its place, if one may."""
        if not self._has_waiting_streams:
            return None
        now = time.monotonic()
        stop_times = [now]
        for stream in self._streams:
            if stream.stop_time is not None:
                stop_times.append(stream.stop_time)
        return max(0.0, min(stop_times) + UNREAD_SECONDS - now)

    def _step_streams(self) -> None:
        """Generate one piece of each active stream, and end those that are not read."""
        for stream in self._streams.active():
            if stream.can_step:
                self._send(stream, self._next_piece(stream))
        now = time.monotonic()
        for stream in list(self._streams):
            if stream.can_step:
                stream.stop_time = None
                continue
            stream.stop_time = stream.stop_time or now
            if self._has_waiting_streams and now >= stream.stop_time + UNREAD_SECONDS:
                self._send(stream, RequestTimeout("the stream was not read while others waited"))

    def _send(self, stream: Stream, piece: str | Exception | StreamEnd) -> None:
        """Send a piece of a stream to its client, or its end."""
        if not isinstance(piece, str):
            stream.pieces.close()
            self._streams.remove(stream)
        self._call_soon(stream.unread.put_nowait, piece)

    def _next_piece(self, stream: Stream) -> str | Exception | StreamEnd:
        """Return the next piece of a stream, its end, or what it has failed with."""
        if stream.is_cancelled:
            return StreamEnd("cancelled")
        stream.has_begun = True
        try:
            piece = next(stream.pieces)
        except StopIteration as end:
            return StreamEnd(*end.value)
        except Exception as error:
            return self._judge(stream.model, stream.task, error)
        stream.model.set_success(functools.partial(_generate, stream.task, stream.record))
        return piece

    def _deliver(self, finished: _Finished) -> None:
        if finished.results or finished.errors:
            self._call_soon(_set_results, finished)

    def _fail_all(self) -> None:
        """Answer everything that waits: the thread ends."""
        finished = _Finished()
        error = Unavailable("the engine has stopped")
        waiting = [job.done for job in self._queue.clear()]
        waiting += [call.done for call in self._calls]
        for stream in self._streams:
            self._call_soon(stream.unread.put_nowait, error)
        finished.errors += [(future, error) for future in waiting]
        self._deliver(finished)

    def _call_soon(self, function: Callable[..., object], *arguments: object) -> None:
        assert self._loop is not None, "the thread is started by the event loop"
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(function, *arguments)


Arrival = Job | Call | Stream | _Wake | _Mark | None


def _portions(turns: Sequence["deque[Job]"]) -> "list[tuple[Job, list[TextExample]]]":
    """Return the next texts of jobs that have none that are tokenized, and remove them there.

    Each client has an equal share of what is tokenized ahead.
    """
    portions: list[tuple[Job, list[TextExample]]] = []
    share = _Amount(
        max(TOKENIZED_AHEAD.texts // len(turns), 1), TOKENIZED_AHEAD.characters // len(turns)
    )
    total = _Amount()
    for jobs in turns:
        amount = _Amount()
        for job in jobs:
            for text in job.tokenized:
                amount.add(text.item.record)
        for job in jobs:
            portion: list[TextExample] = []
            while job.untokenized and not job.tokenized:
                # The job whose turn it is has a text in any case.
                is_next = job is jobs[0] and not portion
                if amount.reaches(share) and not is_next:
                    break
                record = job.untokenized.popleft()
                portion.append(record)
                amount.add(record)
            if portion:
                portions.append((job, portion))
        total.texts += amount.texts
        total.characters += amount.characters
        if total.reaches(TOKENIZED_AHEAD):
            break
    return portions


def too_long(item: "EncodedExample", truncated: int, task: "Task") -> TooLarge:
    """Return the error of a text that would have to be cut."""
    return TooLarge(
        f"{item.record.location} is {truncated:,} tokens longer than the {task.max_tokens:,} that "
        'the model reads; shorten it, or add "truncate": true'
    )


def _take(turns: "Sequence[deque[Job]]", max_tokens: int) -> list[tuple[Job, WaitingText]]:
    """Return texts of up to a number of tokens, one of each client after another; at least one."""
    batch: list[tuple[Job, WaitingText]] = []
    waiting = [jobs for jobs in turns if jobs]
    tokens = 0
    while waiting:
        for jobs in list(waiting):
            while jobs and not (jobs[0].tokenized and jobs[0].is_waiting):
                jobs.popleft()
            if not jobs:
                waiting.remove(jobs)
                continue
            job = jobs[0]
            jobs.rotate(-1)
            cost = job.tokenized[0].cost
            if batch and tokens + cost > max_tokens:
                return batch
            batch.append((job, job.tokenized.popleft()))
            tokens += cost
    return batch


def _put_back(
    choice: Sequence[tuple[Job, WaitingText]], groups: Sequence[Sequence[tuple[Job, WaitingText]]]
) -> None:
    """Let the texts of groups that were not computed wait, in the order in which they did."""
    rows = set[tuple[Job, int]]()
    for group in groups:
        rows.update((job, text.item.row_id) for job, text in group)
    for job, text in reversed(choice):
        if (job, text.item.row_id) in rows:
            job.tokenized.appendleft(text)


def _group_by_length(
    batch: Sequence[tuple[Job, WaitingText]],
) -> list[list[tuple[Job, WaitingText]]]:
    """Return the texts of a batch in groups that the task computes in one forward pass each."""
    task = batch[0][0].task
    if not isinstance(task, BatchTask):
        return [list(batch)]
    costs = [text.cost for _, text in batch]
    return [[batch[index] for index in indices] for indices in task.plan_batches(costs)]


def _cost(task: "Task", item: "EncodedExample") -> int:
    """Return the number of tokens of a text, in all rows that it is computed in."""
    if isinstance(task, BatchTask):
        return sum(task.cost(row) for row in task.split(item))
    return len(item.encoded.ids)


def _compute(task: "Task", item: "EncodedExample") -> None:
    """Compute a text whose result nobody needs; raises what the model fails with."""
    if isinstance(task, GenerationTask):
        _generate(task, item.record)
    else:
        list(task.run_chunk([item]))


def _compute_simple(task: "Task") -> None:
    """Compute a text that every model can compute."""
    if isinstance(task, GenerationTask):
        _generate(task, SIMPLE_TEXT)
        return
    task.validate(SIMPLE_TEXT)
    (item,) = task.tokenize([SIMPLE_TEXT], 0)
    task.check(item)
    _compute(task, item)


def _generate(task: GenerationTask, record: TextExample) -> None:
    """Generate the first piece of a text."""
    pieces = task.stream_text(record)
    try:
        next(pieces, None)
    finally:
        pieces.close()


def _run_rows(task: "Task", items: "Sequence[EncodedExample]") -> list[RowResult]:
    return [RowResult(item, added) for item, added in task.run_chunk(list(items))]


def _set_results(finished: _Finished) -> None:
    """Set futures, in the event loop; those that nobody waits for are cancelled."""
    for future, value in finished.results:
        if not future.done():
            future.set_result(value)
    for future, error in finished.errors:
        if not future.done():
            future.set_exception(error)


def _log_failure(error: Exception) -> None:
    """Log an exception; its message only if it is ours, since another may have texts in it."""
    if isinstance(error, ZooError):
        LOG.warning("a request has failed", extra={"error": type(error).__name__})
        return
    LOG.error("the model has failed", extra={"error": type(error).__name__})
