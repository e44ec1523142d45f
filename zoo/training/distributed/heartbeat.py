"""Heartbeats of the processes of a run: who is late, and who has ended.

Each process writes a record into the store of the rendezvous every few seconds, and reads those of
the others, in threads. A process that is stopped, or whose machine is cut off, writes nothing
more; the others name it long before a collective operation times out.
"""

import contextlib
import os
import socket
import sys
import threading
import time
from dataclasses import dataclass

import msgspec
from torch.distributed.distributed_c10d import Store

INTERVAL = 2.0  # seconds between two heartbeats
SILENCE = 45.0  # seconds without a heartbeat, or in one step, after which a process is named
KEY = "zoo/heartbeat/{rank}"


class Beat(msgspec.Struct):
    """What a process writes.

    Attributes:
        host: name of its machine.
        pid: its number there.
        work: what it does, such as ``step 56``.
        step: the step that it has begun; 0 before the first.
        count: number of heartbeats, so that each is another one.
    """

    host: str
    pid: int
    work: str = "start"
    step: int = 0
    count: int = 0


@dataclass
class Peer:
    """What this process knows of another one; times are of this machine's clock.

    Attributes:
        beat: its last heartbeat; ``None`` before the first.
        heard_at: when it arrived.
        step_at: when it was first heard of in its present step.
    """

    heard_at: float
    step_at: float
    beat: Beat | None = None

    def hear(self, beat: Beat, now: float) -> None:
        """Take a heartbeat, which may be the one that is known."""
        if self.beat is None or beat.step != self.beat.step:
            self.step_at = now
        if self.beat is None or beat.count != self.beat.count:
            self.heard_at = now
        self.beat = beat


class Heartbeat:
    """Threads that write this process's heartbeats, read those of the others and name who is late.

    Args:
        store: store that all processes share; a connection of its own is used.
        rank: rank of this process.
        world_size: number of processes.
        interval: seconds between two heartbeats.
        silence: seconds after which a process is named.
    """

    def __init__(
        self,
        store: Store,
        rank: int,
        world_size: int,
        *,
        interval: float = INTERVAL,
        silence: float = SILENCE,
    ) -> None:
        self._store: Store = store.clone()  # type: ignore[attr-defined]
        self._rank = rank
        self._interval = interval
        self._silence = silence
        now = time.monotonic()
        self._own = Beat(socket.gethostname(), os.getpid())
        self._own_step_at = now
        self._peers = {peer: Peer(now, now) for peer in range(world_size) if peer != rank}
        self._named: dict[int, float] = {}
        self._is_ending = threading.Event()
        # The store does not answer for minutes if its machine is cut off, so that a thread of its
        # own waits for it.
        self._threads = [
            threading.Thread(target=target, name="zoo-heartbeat", daemon=True)
            for target in (self._exchange_beats, self._watch_peers)
        ]

    def start(self) -> None:
        """Start the threads."""
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """End the threads; one that waits for a lost store ends with the process."""
        self._is_ending.set()
        for thread in self._threads:
            thread.join(2 * self._interval)

    def begin_step(self, step: int) -> None:
        """Note that this process has begun a step, counted from 1."""
        self._own.step = step
        self._own.work = f"step {step}"
        self._own_step_at = time.monotonic()

    def ended_process(self) -> str | None:
        """Return which other process has ended, as far as this one can tell, or ``None``.

        Of processes of the same machine it is known at once; of others when they are silent.
        """
        for rank, peer in self._peers.items():
            beat = peer.beat
            if beat is not None and beat.host == self._own.host and not _is_running(beat.pid):
                return f"process {rank} on {beat.host} (pid {beat.pid}) has ended"
        now = time.monotonic()
        for rank, peer in self._peers.items():
            if peer.beat is not None and now - peer.heard_at > 2 * self._interval:
                return f"process {rank} on {peer.beat.host} does not answer"
        return None

    def is_silent(self, rank: int, seconds: float) -> bool:
        """Return whether nothing was heard of a process for a time."""
        return time.monotonic() - self._peers[rank].heard_at > seconds

    def name(self, rank: int) -> str:
        """Return the name of a process: its rank and its machine."""
        beat = self._peers[rank].beat
        return f"process {rank}" if beat is None else f"process {rank} on {beat.host}"

    def _exchange_beats(self) -> None:
        while not self._is_ending.wait(self._interval):
            # A store that has ended makes all others silent, which is reported.
            with contextlib.suppress(RuntimeError):
                self._exchange()

    def _watch_peers(self) -> None:
        while not self._is_ending.wait(self._interval):
            for line in self._late_lines(time.monotonic()):
                print(f"warning: {line}", file=sys.stderr, flush=True)

    def _exchange(self) -> None:
        """Write this process's heartbeat, and read those of the others."""
        self._own.count += 1
        self._store.set(KEY.format(rank=self._rank), msgspec.json.encode(self._own).decode())
        for rank, peer in self._peers.items():
            key = KEY.format(rank=rank)
            if peer.beat is not None or self._store.check([key]):
                beat = msgspec.json.decode(self._store.get(key), type=Beat)
                peer.hear(beat, time.monotonic())

    def _late_lines(self, now: float) -> list[str]:
        """Return a line for each process that is late and was not named for a while."""
        silent = [r for r, peer in self._peers.items() if now - peer.heard_at > self._silence]
        speaker = min([self._rank, *(rank for rank in self._peers if rank not in silent)])
        if speaker != self._rank:
            return []
        lines = []
        for rank, peer in self._peers.items():
            if now - self._named.get(rank, -self._silence) < self._silence:
                continue
            line = self._late_line(rank, peer, now, is_silent=rank in silent)
            if line is not None:
                self._named[rank] = now
                lines.append(line)
        return lines

    def _late_line(self, rank: int, peer: Peer, now: float, *, is_silent: bool) -> str | None:
        name = self.name(rank)
        if is_silent:
            seconds = now - peer.heard_at
            if peer.beat is None:
                return f"{name} has not started after {seconds:.0f} s"
            if peer.beat.step == 0:
                return f"{name} was not heard of for {seconds:.0f} s"
            return (
                f"{name} has not finished step {peer.beat.step}; it was not heard of for "
                f"{seconds:.0f} s"
            )
        is_behind = peer.beat is not None and 0 < peer.beat.step < self._own.step
        if is_behind and peer.beat is not None and now - self._own_step_at > self._silence:
            seconds = now - peer.step_at
            return f"{name} has not finished step {peer.beat.step} after {seconds:.0f} s"
        return None


def _is_running(pid: int) -> bool:
    """Return whether a process of this machine runs; one that waits for its parent does not."""
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
            return file.read().rpartition(")")[2].split()[0] not in ("Z", "X")
    except FileNotFoundError:
        return not os.path.isdir("/proc/self")
    except (OSError, IndexError):
        return True
