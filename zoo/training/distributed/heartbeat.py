"""Heartbeats of the processes of a run: who is late, and who has ended.

Each process writes a record into the store of the rendezvous every few seconds, and reads those of
the others, in threads. A process that is stopped, or whose machine is cut off, writes nothing
more; the others name it long before a collective operation times out. How a process ended is known
on its machine, which tells the others; a connection tells a stopped process from a lost machine.
"""

import contextlib
import os
import select
import socket
import sys
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass

import msgspec
from torch.distributed.distributed_c10d import Store

from zoo.training.distributed.process_state import (
    LivenessPort,
    describe_end,
    is_loopback,
    machine_id,
    probe,
    read_process_state,
)

INTERVAL = 2.0  # seconds between two heartbeats
SILENCE = 45.0  # seconds without a heartbeat, or in one step, after which a process is named
KEY = "zoo/heartbeat/{rank}"
HAS_ENDED = "it has ended"
PROBE_RESULTS = {
    "exists": "{host} answers, so the process is stopped or hangs",
    "ended": HAS_ENDED,
    "unreachable": "{host} cannot be reached; it is down, or the connection is lost",
}
FIRST_END_KEY = "zoo/first-end"  # The store's key of the process that ended first, and how.
END_POLL_SECONDS = 0.1
STORE_SECONDS = 1.0  # Time in which the store answers, if its machine does.
MAX_PROBES = 16  # processes that one process connects to at once
# Exit codes of a process that is done, and of one that the end of another one has interrupted.
NO_REASONS = (0, 130)


class Beat(msgspec.Struct):
    """What a process writes.

    Attributes:
        host: name of its machine.
        pid: its number there.
        machine: see ``machine_id``.
        address: address of its liveness port; empty if it has none.
        port: number of its liveness port.
        work: what it does, such as ``step 56``.
        step: the step that it has begun; 0 before the first.
        count: number of heartbeats, so that each is another one.
    """

    host: str
    pid: int
    machine: str = ""
    address: str = ""
    port: int = 0
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
        self._own = Beat(socket.gethostname(), os.getpid(), machine_id())
        self._own_step_at = now
        self._port: LivenessPort | None = None
        with contextlib.suppress(OSError):  # A network without names, or without free ports.
            self._port = LivenessPort(os.environ.get("MASTER_ADDR", "localhost"))
            self._own.address = self._port.address
            self._own.port = self._port.port
        self._first_end = ""
        self._interrupted_ranks: set[int] = set()
        self._peers = {peer: Peer(now, now) for peer in range(world_size) if peer != rank}
        self._named: dict[int, float] = {}
        self._is_ending = threading.Event()
        # The store does not answer for minutes if its machine is cut off, so that a thread of its
        # own waits for it.
        self._threads = [
            threading.Thread(target=target, name="zoo-heartbeat", daemon=True)
            for target in (self._exchange_beats, self._watch_peers, self._watch_ends)
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
        if self._port is not None:
            self._port.close()

    def begin_step(self, step: int) -> None:
        """Note that this process has begun a step, counted from 1."""
        self._own.step = step
        self._own.work = f"step {step}"
        self._own_step_at = time.monotonic()

    def ended_process(self) -> str | None:
        """Return which other process has ended and how, as far as is known, or ``None``.

        It takes a few seconds at most.
        """
        # The connections of a process are closed before its exit status is known, and another
        # machine may be the one that knows it.
        deadline = time.monotonic()
        if self._share_machines():
            deadline += STORE_SECONDS
        while not self.first_end() and time.monotonic() < deadline:
            # The store may be lost.
            reader = threading.Thread(target=self._read_first_end, daemon=True)
            reader.start()
            reader.join(deadline - time.monotonic())
            time.sleep(END_POLL_SECONDS)
        return self._first_end or self._lost_process()

    def first_end(self) -> str:
        """Return which process ended first and how, if it is known already, or an empty text."""
        if not self._first_end:
            self._note_ends(self._local_peers())
        return self._first_end

    def _lost_process(self) -> str | None:
        """Return which process of another machine has ended or does not answer, or ``None``."""
        now = time.monotonic()
        silences = {}
        for rank, peer in self._peers.items():
            if peer.beat is not None:
                silences[rank] = now - peer.heard_at
        by_silence = sorted(silences, key=silences.__getitem__, reverse=True)
        for rank in by_silence[:MAX_PROBES]:
            state = self._probe(self._peers[rank])
            if state == HAS_ENDED:
                return f"{self.name(rank)} has ended"
            if silences[rank] > 2 * self._interval:
                reason = f": {state}" if state else ""
                return f"{self.name(rank)} does not answer{reason}"
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

    def _watch_ends(self) -> None:
        """Note how processes of this machine end, before their parent takes their exit status."""
        if not hasattr(os, "pidfd_open"):
            return  # Only Linux has such files.
        ends = select.poll()
        ranks: dict[int, int] = {}
        while not self._is_ending.is_set():
            for rank in self._local_peers():
                if rank not in ranks.values():
                    with contextlib.suppress(OSError):
                        file = os.pidfd_open(self._pid(rank))
                        ends.register(file, select.POLLIN)
                        ranks[file] = rank
            for file, _ in ends.poll(END_POLL_SECONDS * 1000):
                self._note_ends([ranks[file]])
                ends.unregister(file)
        for file in ranks:
            os.close(file)

    def _note_ends(self, local_ranks: Iterable[int]) -> None:
        """Note which processes of this machine have ended, and tell all of the first one."""
        for rank in local_ranks:
            if rank in self._interrupted_ranks:
                continue
            pid = self._pid(rank)
            try:
                state = read_process_state(pid)
            except OSError:
                return
            how = "has ended"
            if state is not None:
                if not state.has_ended:
                    continue
                if os.waitstatus_to_exitcode(state.wait_status) in NO_REASONS:
                    self._interrupted_ranks.add(rank)
                    continue
                how = describe_end(state.wait_status)
            if not self._first_end:
                self._first_end = f"{self.name(rank)} (pid {pid}) {how}"
                threading.Thread(target=self._read_first_end, daemon=True).start()

    def _read_first_end(self) -> None:
        """Exchange which process ended first with the other processes."""
        with contextlib.suppress(RuntimeError):
            text = self._store.compare_set(FIRST_END_KEY, "", self._first_end)
            self._first_end = text.decode()

    def _local_peers(self) -> list[int]:
        """Return the ranks of the other processes of this machine that were heard of."""
        ranks = []
        for rank, peer in self._peers.items():
            if peer.beat is not None and peer.beat.machine == self._own.machine:
                ranks.append(rank)
        return ranks

    def _share_machines(self) -> bool:
        """Return whether a machine has several processes, of which one sees another one end."""
        machines = [self._own.machine]
        for peer in self._peers.values():
            if peer.beat is not None:
                machines.append(peer.beat.machine)
        return len(set(machines)) < len(machines)

    def _pid(self, rank: int) -> int:
        beat = self._peers[rank].beat
        assert beat is not None, "it was heard of"
        return beat.pid

    def _probe(self, peer: Peer) -> str:
        """Return the state of a process that does not answer, or an empty text if it is unknown."""
        beat = peer.beat
        if beat is None:
            return ""
        if beat.machine == self._own.machine:
            with contextlib.suppress(OSError):
                state = read_process_state(beat.pid)
                if state is None or state.has_ended:
                    return HAS_ENDED
                if state.is_stopped:
                    return "it is stopped"
            return ""
        if not beat.address or is_loopback(beat.address):
            return ""
        return PROBE_RESULTS[probe(beat.address, beat.port)].format(host=beat.host)

    def _watch_peers(self) -> None:
        while not self._is_ending.wait(self._interval):
            for line in self._late_lines(time.monotonic()):
                print(f"warning: {line}", file=sys.stderr, flush=True)

    def _exchange(self) -> None:
        """Write this process's heartbeat, and read those of the others."""
        if self._port is not None:
            self._port.answer()
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
        lines: list[str] = []
        for rank, peer in self._peers.items():
            if now - self._named.get(rank, -self._silence) < self._silence:
                continue
            # A lost store makes all others silent, and each may take seconds to answer.
            state = ""
            if rank in silent and len(lines) < MAX_PROBES:
                state = self._probe(peer)
            line = self._late_line(rank, peer, now, state, is_silent=rank in silent)
            if line is not None:
                self._named[rank] = now
                lines.append(line)
        return lines

    def _late_line(
        self, rank: int, peer: Peer, now: float, state: str, *, is_silent: bool
    ) -> str | None:
        name = self.name(rank)
        if is_silent:
            seconds = now - peer.heard_at
            if peer.beat is None:
                return f"{name} has not started after {seconds:.0f} s"
            reason = f": {state}" if state else ""
            if peer.beat.step == 0:
                return f"{name} was not heard of for {seconds:.0f} s{reason}"
            return (
                f"{name} has not finished step {peer.beat.step}; it was not heard of for "
                f"{seconds:.0f} s{reason}"
            )
        is_behind = peer.beat is not None and 0 < peer.beat.step < self._own.step
        if is_behind and peer.beat is not None and now - self._own_step_at > self._silence:
            seconds = now - peer.step_at
            return f"{name} has not finished step {peer.beat.step} after {seconds:.0f} s"
        return None
