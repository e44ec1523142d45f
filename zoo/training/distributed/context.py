"""Rank, world size and device of a process, and the collective operations of training."""

import contextlib
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from itertools import count
from typing import TypeVar

import torch
from torch import distributed
from torch.distributed.distributed_c10d import Store
from torch.distributed.rendezvous import rendezvous

from zoo.errors import Interrupted, UsageError, ZooError
from zoo.io.numbers import int_from_environment
from zoo.nn.devices import resolve_device
from zoo.training.distributed.bounded_calls import call_within
from zoo.training.distributed.heartbeat import SILENCE, Heartbeat
from zoo.training.distributed.joining import compare_values, join, wait_for_key
from zoo.training.distributed.reporting import ReportedElsewhere, state
from zoo.version import __version__

T = TypeVar("T")
ERROR_KEY = "zoo/error"  # The store's key of the main process's error.
ANSWERS_KEY = "zoo/heard"  # The store's key of the number of processes that read it.
PEER_MESSAGE = "another process of the run ended"
PEER_HINT = "its own message, or the launcher's, says why"
KILLED_HINT = "the system does that if memory runs out"
DONE_KEY = "zoo/done/{number}"  # The store's key of what the main process has built.
TIMEOUT = 600.0  # seconds that processes wait for each other
BUILD_TIMEOUT = 24 * 3600.0  # seconds that they wait while one builds a corpus, for example
POLL_SECONDS = 0.05
ANSWER_SECONDS = 2.0  # Time in which other processes notice that the main process has ended.


class PeerEnded(Interrupted):
    """Work that the end of another process has interrupted."""


@dataclass(frozen=True)
class DistContext:
    """Rank, world size and device of this process."""

    rank: int  # rank of the process, from 0
    world_size: int  # number of processes
    device: torch.device  # device of the process
    # texts that all processes share, also after the process group is destroyed
    store: Store | None = field(default=None, compare=False, repr=False)
    heartbeat: Heartbeat | None = field(default=None, compare=False, repr=False)
    timeout: float = TIMEOUT  # seconds that processes wait for each other
    # number of times that the main process has gone first
    _turns: "count[int]" = field(default_factory=count, compare=False, repr=False)
    # number of times that values were compared
    _comparisons: "count[int]" = field(default_factory=count, compare=False, repr=False)

    @classmethod
    def initialize(cls, device: str | None = None, timeout: float = TIMEOUT) -> "DistContext":
        """Initialize the process group, if ``torchrun`` (or SLURM through it) started several.

        Args:
            device: device of the processes; ``None`` for CUDA where it is available.
            timeout: seconds after which a collective operation fails that others do not reach.
        """
        local_rank = int_from_environment("LOCAL_RANK", 0)
        device_name = device or ("cuda" if torch.cuda.is_available() else "cpu")
        if device_name == "cuda":
            device_name = f"cuda:{local_rank}"
        torch_device = resolve_device("auto", device_name)
        world_size = int_from_environment("WORLD_SIZE", 1)
        if torch_device.type == "cuda":
            torch.cuda.set_device(torch_device)
        rank = int_from_environment("RANK", 0)
        store = None
        if world_size > 1 and not distributed.is_initialized():
            shared_store, rank, world_size = next(rendezvous("env://"))
            store = join(shared_store, rank, world_size, timeout)
            require_same_software(store, rank, world_size, timeout)
            backend = "nccl" if torch_device.type == "cuda" else "gloo"
            try:
                distributed.init_process_group(
                    backend,
                    store=store,
                    rank=rank,
                    world_size=world_size,
                    timeout=timedelta(seconds=timeout),
                )
            except RuntimeError as error:
                reason = str(error).splitlines()[0]
                raise PeerEnded(
                    f"process {rank} cannot connect to the others: {reason}", PEER_HINT
                ) from error
        heartbeat = None
        if store is not None:
            heartbeat = Heartbeat(store, rank, world_size)
        return cls(rank, world_size, torch_device, store, heartbeat, timeout)

    @classmethod
    @contextlib.contextmanager
    def opened(
        cls,
        device: str | None = None,
        threads: int | None = None,
        timeout: float = TIMEOUT,
    ) -> "Iterator[DistContext]":
        """Initialize the process group, and destroy it at the end.

        Args:
            device: device of the processes; ``None`` for CUDA where it is available.
            threads: number of CPU threads of this process; ``None`` for torch's default.
            timeout: seconds that processes wait for each other.

        Raises:
            ReportedElsewhere: the main process reports the error of this process.
        """
        if threads is not None:
            torch.set_num_threads(threads)
        dist = cls.initialize(device, timeout)
        state.has_process_group = True
        try:
            if dist.heartbeat is not None:
                dist.heartbeat.start()
            yield dist
        except (ZooError, KeyboardInterrupt, RuntimeError) as error:
            if isinstance(error, RuntimeError) and not dist.is_peer_failure(error):
                raise
            reported_error: BaseException = error
            if isinstance(error, RuntimeError | KeyboardInterrupt):
                # A launcher ends all processes when one has ended.
                reported_error = dist.peer_error(error) or error
            if isinstance(reported_error, RuntimeError):
                reported_error = PeerEnded(PEER_MESSAGE, PEER_HINT)
            if dist.is_main_process:
                dist.announce_error(reported_error)
            elif dist.hears_of_error(reported_error):
                raise ReportedElsewhere(error) from error
            if reported_error is error:
                raise
            raise reported_error from error
        finally:
            # A launcher may interrupt a process that ends already, and has an error to report.
            with contextlib.suppress(KeyboardInterrupt):
                if dist.heartbeat is not None:
                    dist.heartbeat.stop()
                dist.destroy()

    def peer_error(self, error: BaseException) -> PeerEnded | None:
        """Return the error for another process that has ended, if one has.

        Args:
            error: error of this process: of its communication, or an interruption.
        """
        if self.heartbeat is None:
            return None
        ended: str | None = self.heartbeat.first_end()
        if not ended and not isinstance(error, KeyboardInterrupt):
            try:
                ended = self.heartbeat.ended_process()
            except KeyboardInterrupt:  # A launcher ends this process for the same reason.
                ended = self.heartbeat.ended_process()
        if not ended:
            return None
        hint = KILLED_HINT if ended.endswith("SIGKILL") else PEER_HINT
        return PeerEnded(ended, hint)

    def begin_step(self, step: int) -> None:
        """Note that this process has begun a step, counted from 1."""
        if self.heartbeat is not None:
            self.heartbeat.begin_step(step)

    def announce_error(self, error: BaseException) -> None:
        """Tell the other processes that this one, the main one, reports an error."""
        if self.store is None:
            return
        is_peer = isinstance(error, PeerEnded)
        # A launcher that notices the end of the others interrupts this, and the error is reported.
        with contextlib.suppress(RuntimeError, KeyboardInterrupt):
            call_within(ANSWER_SECONDS, partial(self._set_error, "peer" if is_peer else "own"))
            self.destroy()  # Others may wait for this process.
            call_within(ANSWER_SECONDS, self._wait_for_answers)

    def _set_error(self, origin: str) -> bool:
        assert self.store is not None, "there are several processes"
        with contextlib.suppress(RuntimeError):
            self.store.set(ERROR_KEY, origin)
            return True
        return False

    def _wait_for_answers(self) -> bool:
        """Wait until all other processes know of the error."""
        assert self.store is not None, "there are several processes"
        deadline = time.monotonic() + ANSWER_SECONDS
        with contextlib.suppress(RuntimeError):
            while time.monotonic() < deadline:
                if self.store.add(ANSWERS_KEY, 0) >= self.world_size - 1:
                    return True
                time.sleep(0.01)
        return False

    def hears_of_error(self, error: BaseException) -> bool:
        """Return whether the main process reports the error of this process as well."""
        try:
            return self._waits_for_report(error)
        except KeyboardInterrupt:  # A launcher ends this process, which reports the error itself.
            return False

    def _waits_for_report(self, error: BaseException) -> bool:
        # This waits until the main process has had the time to report it, since launchers end all
        # processes with one.
        if self.store is None:
            return False
        if self.heartbeat is not None and self.heartbeat.is_silent(0, SILENCE):
            return False  # Its machine may be cut off, and the store with it.
        if self.heartbeat is not None and str(error).startswith(f"{self.heartbeat.name(0)} "):
            return False  # It has ended itself.
        is_interruption = isinstance(error, Interrupted | KeyboardInterrupt)
        is_reported = call_within(
            2 * ANSWER_SECONDS, partial(self._answers_report, is_interruption=is_interruption)
        )
        if is_reported:
            # A launcher interrupts this when the main process has ended, after its report.
            with contextlib.suppress(KeyboardInterrupt):
                time.sleep(ANSWER_SECONDS / 2)
        return is_reported

    def _answers_report(self, *, is_interruption: bool) -> bool:
        """Return whether the main process reports this error, and tell it that this one knows."""
        assert self.store is not None, "there are several processes"
        try:
            self.store.wait([ERROR_KEY], timedelta(seconds=ANSWER_SECONDS))
            is_reported = is_interruption or self.store.get(ERROR_KEY) == b"own"
            self.store.add(ANSWERS_KEY, 1)
        except RuntimeError:  # There is no answer: the main process trains, or was killed.
            return False
        return is_reported

    @property
    def is_main_process(self) -> bool:
        """``True`` if this is the process of rank 0, which writes all files."""
        return self.rank == 0

    def sum_counts(self, counts: Mapping[str, float]) -> dict[str, float]:
        """Return the sums of counts over all processes."""
        if self.world_size == 1:
            return dict(counts)
        summed = self.all_reduce(torch.tensor(list(counts.values()), dtype=torch.float64))
        return dict(zip(counts, summed.tolist(), strict=True))

    def all_reduce(self, values: torch.Tensor) -> torch.Tensor:
        """Return the sum of a tensor over all processes."""
        if self.world_size == 1:
            return values
        values = values.to(self.device)
        distributed.all_reduce(values)
        return values

    def any(self, flag: bool) -> bool:
        """Return whether a flag is set in any process."""
        if self.world_size == 1:
            return flag
        return bool(self.all_reduce(torch.tensor([int(flag)])).item())

    def gather_rows(self, tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Return the concatenated rows of all processes, in order of ranks, on the CPU."""
        local_rows = {name: tensor.detach().cpu() for name, tensor in tensors.items()}
        if self.world_size == 1 or not self.any(bool(local_rows)):
            return local_rows
        rows_by_rank: Sequence[dict[str, torch.Tensor]] = [{} for _ in range(self.world_size)]
        distributed.all_gather_object(rows_by_rank, local_rows)
        gathered = {}
        for name in local_rows:
            gathered[name] = torch.cat([rows[name] for rows in rows_by_rank])
        return gathered

    def broadcast(self, value: str) -> str:
        """Return the value of the main process, in all processes."""
        values = [value]
        if self.world_size > 1:
            distributed.broadcast_object_list(values)
        return values[0]

    def main_process_first(self, make: Callable[[], T]) -> T:
        """Call a function in the main process, then in all others."""
        if self.store is None:
            result = None
            if self.is_main_process:
                result = make()
            self.barrier()
            return result or make()
        key = DONE_KEY.format(number=next(self._turns))
        if self.is_main_process:
            result = make()
            self.store.set(key, "done")
            return result
        self._wait_for(key, 0)
        return make()

    def require_same(self, subject: str, values: Mapping[str, str], hint: str) -> None:
        """Check that all processes have the same values, such as digests of their data.

        Args:
            subject: what is compared, for the message.
            values: name -> value.
            hint: remedy of a difference.

        Raises:
            UsageError: they differ; it names the hosts.
        """
        if self.store is None:
            return
        key = f"zoo/same/{next(self._comparisons)}"
        differences = compare_values(
            self.store, key, values, self.rank, self.world_size, self._wait_for
        )
        if differences:
            raise UsageError(f"the hosts have different {subject}: {differences}", hint)

    def _wait_for(self, key: str, rank: int) -> None:
        """Wait for a key that a process sets, for as long as a build may take.

        One of the processes that wait says so, again after each doubling of the time.

        Raises:
            PeerEnded: it has ended, does not answer, or takes longer than ``BUILD_TIMEOUT``.
        """
        assert self.store is not None, "there are several processes"
        name = f"process {rank}"
        begin = time.monotonic()
        line_after = SILENCE
        while not self.store.check([key]):
            if rank == 0 and self.store.check([ERROR_KEY]):
                raise PeerEnded(PEER_MESSAGE, PEER_HINT)
            seconds = time.monotonic() - begin
            if self.heartbeat is not None:
                if self.heartbeat.first_end():
                    raise PeerEnded(self.heartbeat.first_end(), PEER_HINT)
                name = self.heartbeat.name(rank)
                if self.heartbeat.is_silent(rank, self.timeout):
                    raise PeerEnded(f"{name} does not answer", "look at its machine")
            if seconds > BUILD_TIMEOUT:
                raise PeerEnded(
                    f"{name} has prepared its data and model for {seconds:.0f} s",
                    "look at its machine, or build the corpus before the run",
                )
            if seconds > line_after:
                line_after *= 2
                if self.rank == (1 if rank == 0 else 0):
                    line = f"waiting for {name}, which prepares data or models, for {seconds:.0f} s"
                    print(line, file=sys.stderr, flush=True)
            time.sleep(POLL_SECONDS)

    def barrier(self) -> None:
        """Wait until all processes have reached this call."""
        if self.world_size > 1:
            distributed.barrier()

    def is_peer_failure(self, error: Exception) -> bool:
        """Return whether an error means that another process has died."""
        # gloo's errors have no class of their own.
        from_collective = isinstance(error, distributed.DistError) or "gloo" in str(error)
        return self.world_size > 1 and from_collective

    def destroy(self) -> None:
        """Destroy the process group."""
        if self.world_size > 1 and distributed.is_initialized():
            distributed.destroy_process_group()


def require_same_software(store: Store, rank: int, world_size: int, timeout: float) -> None:
    """Check that all processes have the same versions of this package and of torch.

    Raises:
        UsageError: they differ; it names the hosts.
    """

    def wait(key: str, peer: int) -> None:
        wait_for_key(store, key, peer, timeout)

    values = {"zoo": __version__, "torch": str(torch.__version__)}
    differences = compare_values(store, "zoo/software", values, rank, world_size, wait)
    if differences:
        raise UsageError(
            f"the hosts have different versions: {differences}", "install the same ones"
        )
