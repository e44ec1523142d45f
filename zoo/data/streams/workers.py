"""Processes that read and tokenize the blocks of a stream ahead of the run."""

import multiprocessing
import os
import signal
from collections import deque
from dataclasses import replace
from multiprocessing.connection import Connection
from typing import Any, Protocol

from zoo.data.encoding import DocumentTokenizer
from zoo.data.streams.blocks import BlockReader, BlockSize, Position, TokenBlock
from zoo.data.streams.source import StreamSource
from zoo.errors import UsageError, ZooError
from zoo.io.processes import exit_with_parent, hidden_main
from zoo.overrides import override

STOP_SECONDS = 5.0  # Time that a process has to end before it is killed.


class BlockSource(Protocol):
    """What returns the blocks of lanes."""

    def request(self, lane: int, start: Position) -> None:
        """Begin to read a block, where this goes on in the background."""

    def receive(self, lane: int, start: Position) -> TokenBlock:
        """Return a block, which need not have been requested."""

    def close(self) -> None:
        """End what reads in the background."""


class InlineBlocks(BlockSource):
    """Reads blocks when they are needed, in this process."""

    def __init__(
        self, source: StreamSource, tokenizer: DocumentTokenizer, block_size: BlockSize
    ) -> None:
        self._reader = BlockReader(source, tokenizer, block_size)

    @override
    def request(self, lane: int, start: Position) -> None:
        pass

    @override
    def receive(self, lane: int, start: Position) -> TokenBlock:
        return self._reader.read(lane, start)

    @override
    def close(self) -> None:
        pass


class WorkerBlocks(BlockSource):
    """Reads blocks in worker processes; each reads always the same lanes."""

    def __init__(
        self,
        source: StreamSource,
        tokenizer: DocumentTokenizer,
        block_size: BlockSize,
        workers: int,
    ) -> None:
        self._parts = (source, tokenizer, block_size)
        self._workers: list[_Worker | None] = [None] * workers

    @override
    def request(self, lane: int, start: Position) -> None:
        self._worker(lane).request(lane, start)

    @override
    def receive(self, lane: int, start: Position) -> TokenBlock:
        return self._worker(lane).receive(lane, start)

    @override
    def close(self) -> None:
        for worker in self._workers:
            if worker is not None:
                worker.close()
        self._workers = [None] * len(self._workers)

    def _worker(self, lane: int) -> "_Worker":
        """Return the process that reads a lane, which is started for its first block."""
        number = lane % len(self._workers)
        worker = self._workers[number]
        if worker is None:
            worker = _Worker(number, len(self._workers), self._parts)
            self._workers[number] = worker
        return worker


class _Worker:
    """A process that reads blocks in the order in which they are requested."""

    def __init__(self, number: int, count: int, parts: Any) -> None:
        self._name = f"process {number + 1} of {count} that tokenizes"
        context = multiprocessing.get_context("spawn")
        self._connection, child_connection = context.Pipe()
        self._process = context.Process(target=_work, args=(child_connection,), daemon=True)
        self._requests: deque[tuple[int, Position]] = deque()
        # Blocks and errors that came before the block that was waited for.
        self._answers: dict[tuple[int, Position], TokenBlock | ZooError] = {}
        with hidden_main():
            self._process.start()
        child_connection.close()
        source, tokenizer, block_size = parts
        # A large object among the arguments would block forever if the process is killed before
        # it reads them; a pipe whose other end is closed raises an error.
        self._send((source, replace(tokenizer, json=b""), block_size))
        self._send(tokenizer.json)

    def request(self, lane: int, start: Position) -> None:
        """Request a block."""
        self._requests.append((lane, start))
        self._send((lane, start))

    def receive(self, lane: int, start: Position) -> TokenBlock:
        """Wait for a block, and return it."""
        key = (lane, start)
        if key not in self._answers and key not in self._requests:
            self.request(lane, start)
        while key not in self._answers:
            try:
                answer = self._connection.recv()
            except (EOFError, OSError) as error:
                raise self._ended() from error
            self._answers[self._requests.popleft()] = answer
        answer = self._answers.pop(key)
        if isinstance(answer, ZooError):
            raise answer
        return answer

    def _send(self, value: Any) -> None:
        try:
            self._connection.send(value)
        except OSError as error:
            raise self._ended() from error

    def _ended(self) -> UsageError:
        """Return the error for a process that has ended."""
        self._process.join(STOP_SECONDS)
        code = self._process.exitcode
        how = f"ended with code {code}"
        if code is not None and code < 0:
            how = f"was killed by {signal.Signals(-code).name}"
        return UsageError(
            f"{self._name} (pid {self._process.pid}) {how}",
            "resume the run, with fewer --workers if memory was short",
        )

    def close(self) -> None:
        """End the process."""
        self._connection.close()
        self._process.terminate()
        self._process.join(STOP_SECONDS)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()


def _work(connection: "Connection[Any, Any]") -> None:
    """Answer requests until the other end is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    exit_with_parent()
    try:
        source, tokenizer, block_size = connection.recv()
        tokenizer = replace(tokenizer, json=connection.recv())
        reader = BlockReader(source, tokenizer, block_size)
        while True:
            lane, start = connection.recv()
            try:
                answer: TokenBlock | ZooError = reader.read(lane, start)
            except ZooError as error:
                answer = error
            connection.send(answer)
    except (EOFError, OSError):
        return
