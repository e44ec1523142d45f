"""The server: sockets, processes and signals."""

import contextlib
import functools
import logging
import multiprocessing
import os
import signal
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import FrameType
from typing import TYPE_CHECKING

import uvicorn
from uvicorn.supervisors.multiprocess import Multiprocess, Process

from zoo.errors import PluginError, SourceError, UsageError, VerificationError, ZooError
from zoo.io.cores import usable_cores
from zoo.overrides import override
from zoo.serving.logs import log_as_json

if TYPE_CHECKING:
    from starlette.applications import Starlette

    from zoo.serving.app import ServerSettings

LOG = logging.getLogger("zoo.serving")
BACKLOG = 2048
KEEP_ALIVE_SECONDS = 30
STOP_SECONDS = 30  # for requests that were begun when the server ends
START_SECONDS = 600.0  # in which a process has to load its models
READY_SECONDS = 0.1  # Seconds in which a process says whether it is ready.
FIRST_PAUSE = 1.0  # seconds between two starts of a process; each pause is twice the last one
LONGEST_PAUSE = 60.0
STEADY_SECONDS = 30.0  # A process that has served for less is restarted after a pause.
MAX_FAILED_STARTS = 5  # Failed starts in a row of every process that end the server.
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)


@dataclass(frozen=True)
class Address:
    """Where a server listens.

    Attributes:
        host: name or address.
        port: port; 0 for any that is free.
        reuse_port: whether other servers may listen there, too.
    """

    host: str
    port: int
    reuse_port: bool = False


def listen(address: Address) -> socket.socket:
    """Return a socket that listens.

    If other servers may share the port, it listens only when uvicorn starts: until then, requests
    go to the others.

    Raises:
        UsageError: the port is in use, or the host is not one of this machine.
    """
    try:
        (family, kind, protocol, _, place), *_ = socket.getaddrinfo(
            address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        # asyncio turns Nagle's algorithm off, which delays the second packet of an answer by the
        # client's delayed acknowledgement, only where the protocol is named.
        server_socket = socket.socket(family, kind, protocol)
    except OSError as error:
        raise UsageError(f"--host {address.host}: {error.strerror or error}") from error
    try:
        server_socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if address.reuse_port:
            server_socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        server_socket.bind(place)
        if not address.reuse_port:
            server_socket.listen(BACKLOG)
    except OSError as error:
        server_socket.close()
        where = f"{address.host}:{address.port}"
        raise UsageError(
            f"cannot listen on {where}: {error.strerror or error}", "give another --port"
        ) from error
    server_socket.set_inheritable(True)
    return server_socket


def serve(
    settings: "ServerSettings",
    server_socket: socket.socket,
    *,
    workers: int,
    log_level: str,
    on_start: Callable[[], None],
) -> None:
    """Serve until a signal ends it; what was begun is finished.

    Args:
        settings: what is served.
        server_socket: a socket that listens.
        workers: number of processes.
        log_level: smallest level of the log.
        on_start: called when requests are answered.

    Raises:
        ZooError: a model cannot be loaded, or no process starts.
    """
    log_as_json(log_level)
    if workers == 1:
        from zoo.serving.app import create_app
        from zoo.serving.models import load_models

        models = load_models(settings.models, settings.load_options, settings.max_seq_len)
        app = functools.partial(create_app, settings, models)
        _Server(_config(app), on_start).run([server_socket])
        return
    if settings.load_options.get("threads") is None:
        settings.load_options["threads"] = max(1, usable_cores() // workers)
    with tempfile.TemporaryDirectory(prefix="zoo-serve-") as folder:
        # prometheus_client reads it when it is imported, which only the new processes do.
        os.environ["PROMETHEUS_MULTIPROC_DIR"] = folder
        settings.metrics_folder = folder
        worker_app = functools.partial(_worker_app, settings, log_level)
        _Workers(_config(worker_app, workers=workers), [server_socket], on_start).run()


def _config(app: object, *, workers: int = 1) -> uvicorn.Config:
    return uvicorn.Config(
        app,  # type: ignore[arg-type]
        factory=True,
        workers=workers,
        http="zoo.serving.protocol:LimitedProtocol",
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        backlog=BACKLOG,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=STOP_SECONDS,
    )


def _worker_app(settings: "ServerSettings", log_level: str) -> "Starlette":
    """Return the application of one of several processes; called in the process."""
    from zoo.serving.app import create_app
    from zoo.serving.models import load_models

    log_as_json(log_level)
    # Ctrl-C reaches all processes; the one that has started this one ends it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    try:
        models = load_models(settings.models, settings.load_options, settings.max_seq_len)
    except Exception as error:
        exit_code = error.exit_code if isinstance(error, ZooError) else ZooError.exit_code
        fields = {"error": type(error).__name__, "reason": str(error)}
        LOG.error("a process cannot load its models", extra=fields)
        sys.exit(exit_code)
    return create_app(settings, models)


def _end_with_parent() -> None:
    """End the process when the one that has started it ends without a signal."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os.kill(os.getpid(), signal.SIGTERM)


class _Server(uvicorn.Server):
    """A server for which a signal is the usual end, and not an error of the command.

    Args:
        config: settings of uvicorn.
        on_start: called when requests are answered.
    """

    def __init__(self, config: uvicorn.Config, on_start: Callable[[], None]) -> None:
        super().__init__(config)
        self._on_start = on_start

    @override
    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._on_start()

    @contextlib.contextmanager
    @override
    def capture_signals(self) -> Iterator[None]:
        def stop(number: int, frame: FrameType | None) -> None:
            # A second signal does not wait for requests that were begun.
            self.force_exit = self.should_exit
            self.should_exit = True

        previous_handlers = {number: signal.signal(number, stop) for number in STOP_SIGNALS}
        try:
            yield
        finally:
            for number, handler in previous_handlers.items():
                signal.signal(number, handler)


class _Worker(Process):
    """One of several processes.

    Args:
        config: settings of uvicorn.
        sockets: the sockets.
        predecessor: the process that it replaces.

    Attributes:
        early_ends: how many of the processes up to this one ended, one after another, before they
            had served for a while.
        failed_starts: how many of them ended without answering a request.
        serving_since: when it answered requests first, by the monotonic clock.
        restart_time: when its successor is started; ``None`` while it runs.
    """

    def __init__(
        self,
        config: uvicorn.Config,
        sockets: list[socket.socket],
        predecessor: "_Worker | None" = None,
    ) -> None:
        super().__init__(config, sockets)
        self.early_ends = 0
        self.failed_starts = 0
        if predecessor is not None:
            self.early_ends = predecessor.early_ends
            self.failed_starts = predecessor.failed_starts
        self.serving_since: float | None = None
        self.restart_time: float | None = None

    @property
    def is_serving(self) -> bool:
        """Whether it has answered requests."""
        return self.serving_since is not None

    @property
    def is_running(self) -> bool:
        """Whether the process exists."""
        return self.process.is_alive()

    def check_ready(self) -> None:
        """Ask a process that is loading its models whether it answers requests now."""
        if not self.is_serving and self.is_ready(READY_SECONDS):
            self.serving_since = time.monotonic()
            self.failed_starts = 0

    def plan_restart(self) -> None:
        """Log the end of the process, and plan the start of its successor."""
        self.join()
        end = time.monotonic()
        pause = 0.0
        if self.serving_since is None:
            self.failed_starts += 1
        if self.serving_since is None or end < self.serving_since + STEADY_SECONDS:
            pause = min(FIRST_PAUSE * 2.0**self.early_ends, LONGEST_PAUSE)
            self.early_ends += 1
        else:
            self.early_ends = 0
        self.restart_time = end + pause
        fields = {"pid": self.pid, "code": self.exitcode, "restart_seconds": pause}
        LOG.error("a process has ended", extra=fields)
        _forget_gauges(self.pid)


class _Workers(Multiprocess):
    """Several processes that share a socket; one that ends is replaced.

    A process that cannot be started, or that ends soon after, is started again after pauses that
    grow, while the others serve. The server ends if there are no others and none could be started
    several times.

    Args:
        config: settings of uvicorn.
        sockets: the sockets.
        on_start: called when all processes answer requests.
    """

    processes: list[_Worker]  # type: ignore[assignment]

    def __init__(
        self, config: uvicorn.Config, sockets: list[socket.socket], on_start: Callable[[], None]
    ) -> None:
        super().__init__(config, sockets)
        self._on_start = on_start

    @override
    def init_processes(self) -> None:
        for _ in range(self.processes_num):
            self.processes.append(self._start_worker())
        limit = time.monotonic() + START_SECONDS
        while not self.should_exit.wait(READY_SECONDS):
            self.handle_signals()
            for worker in self.processes:
                if not worker.is_running or time.monotonic() > limit:
                    self._kill_all()
                    raise _start_error(worker, "a process of the server did not start")
                worker.check_ready()
            if all(worker.is_serving for worker in self.processes):
                self._on_start()
                return

    @override
    def keep_subprocess_alive(self) -> None:
        for index, worker in enumerate(self.processes):
            if self.should_exit.is_set():
                return
            if worker.is_running:
                worker.check_ready()
                continue
            if worker.restart_time is None:
                worker.plan_restart()
            assert worker.restart_time is not None, "it was planned"
            if time.monotonic() >= worker.restart_time:
                self.processes[index] = self._start_worker(worker)
        # One that is being started again has failed as often; those that serve have not failed.
        if all(worker.failed_starts >= MAX_FAILED_STARTS for worker in self.processes):
            ended_worker = next(worker for worker in self.processes if not worker.is_running)
            error = _start_error(ended_worker, "no process of the server can be started any more")
            self._kill_all()
            raise error

    @override
    def handle_signals(self) -> None:
        if self._take_stop_signal():
            self.should_exit.set()

    @override
    def terminate_all(self) -> None:
        for worker in self.processes:
            if worker.is_serving:
                worker.terminate()
            else:  # It would load its models first.
                worker.kill()

    @override
    def join_all(self) -> None:
        for worker in self.processes:
            while worker.is_running:
                worker.process.join(READY_SECONDS)
                if self._take_stop_signal():
                    # A second signal does not wait for requests that were begun.
                    self._kill_all()

    def _take_stop_signal(self) -> bool:
        """Return whether a signal has arrived that ends the server."""
        has_arrived = any(number in STOP_SIGNALS for number in self.signal_queue)
        self.signal_queue.clear()
        return has_arrived

    def _start_worker(self, predecessor: _Worker | None = None) -> _Worker:
        worker = _Worker(self.config, self.sockets, predecessor)
        worker.start()
        return worker

    def _kill_all(self) -> None:
        for worker in self.processes:
            worker.kill()
            worker.process.join()


def _start_error(worker: _Worker, message: str) -> ZooError:
    """Return the error of a server whose process did not start, with the process's exit code."""
    for error_class in (UsageError, VerificationError, SourceError, PluginError):
        if worker.exitcode == error_class.exit_code:
            return error_class(message, "the log has the reason")
    return ZooError(message, f"it ended with {worker.exitcode}; the log may have the reason")


def _forget_gauges(pid: int | None) -> None:
    """Remove the gauges of a process that has ended; its counters stay."""
    from prometheus_client.multiprocess import mark_process_dead

    mark_process_dead(pid)  # type: ignore[no-untyped-call]
