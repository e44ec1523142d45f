"""Streams of generated text, whose clients take turns."""

from collections import OrderedDict, deque
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import asyncio

    from zoo.inference.generation.task import GenerationEnd, GenerationTask
    from zoo.inference.processing.records import TextExample
    from zoo.serving.models import ServedModel

ACTIVE_STREAMS = 8  # Streams that generate text at the same time; the others wait.
# Streams that have begun, each with a key-value cache. More than are active, since a stream pauses
# when another client needs its place.
MAX_BEGUN_STREAMS = 2 * ACTIVE_STREAMS
PIECES_AHEAD = 64  # Largest number of pieces that a client has not read.


class StreamEnd(NamedTuple):
    """The end of a stream.

    Attributes:
        stopped: why it ended, as ``stopped`` of a result.
        new_tokens: number of generated tokens.
    """

    stopped: str
    new_tokens: int = 0


@dataclass(eq=False)
class Stream:
    """Text that is generated piece by piece, in turn with batches and other streams.

    Attributes:
        model: the model.
        task: the task.
        record: the text to continue.
        client: who sent the request; clients have equal shares of the active streams.
        pieces: generates the pieces.
        unread: pieces that the client has not read, and last the end or an error.
        is_cancelled: whether nobody reads it any more.
        has_begun: whether a piece was generated.
        stop_time: when the client had read so little that the stream stopped, by the monotonic
            clock.
    """

    model: "ServedModel"
    task: "GenerationTask"
    record: "TextExample"
    client: str
    pieces: "Generator[str, None, GenerationEnd]"
    unread: "asyncio.Queue[str | Exception | StreamEnd]"
    is_cancelled: bool = False
    has_begun: bool = False
    stop_time: float | None = None

    @property
    def can_step(self) -> bool:
        """Whether the engine goes on with it: its client reads, or has left."""
        return self.is_cancelled or self.unread.qsize() < PIECES_AHEAD

    @property
    def is_half_read(self) -> bool:
        """Whether the client has just read so much that a stream that had stopped goes on."""
        return self.unread.qsize() == PIECES_AHEAD // 2


class StreamTurns:
    """The streams of all clients. Each client has an equal share of the active ones."""

    def __init__(self) -> None:
        # The streams of a client are in the order in which they arrived.
        self._clients: OrderedDict[str, deque[Stream]] = OrderedDict()

    def __iter__(self) -> Iterator[Stream]:
        for streams in self._clients.values():
            yield from streams

    def __len__(self) -> int:
        return sum(len(streams) for streams in self._clients.values())

    def add(self, stream: Stream) -> None:
        """Add a stream after those of its client."""
        self._clients.setdefault(stream.client, deque()).append(stream)

    def remove(self, stream: Stream) -> None:
        """Remove a stream that has ended; its place is for another client, if one waits."""
        streams = self._clients[stream.client]
        streams.remove(stream)
        if streams:
            self._clients.move_to_end(stream.client)
        else:
            del self._clients[stream.client]

    def active(self) -> list[Stream]:
        """Return the streams that have a place: one of each client after another."""
        active_streams: list[Stream] = []
        free_caches = MAX_BEGUN_STREAMS - sum(stream.has_begun for stream in self)
        waiting_clients = [deque(streams) for streams in self._clients.values()]
        while waiting_clients:
            for streams in list(waiting_clients):
                if len(active_streams) == ACTIVE_STREAMS:
                    return active_streams
                stream = streams.popleft()
                if not stream.has_begun:
                    # Streams begin in the order of their arrival, so that no later one has begun.
                    if free_caches <= 0:
                        waiting_clients.remove(streams)
                        continue
                    free_caches -= 1
                active_streams.append(stream)
                if not streams:
                    waiting_clients.remove(streams)
        return active_streams
