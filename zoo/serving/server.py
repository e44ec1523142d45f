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
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import FrameType
from typing import TYPE_CHECKING

import uvicorn
from uvicorn.config import STARTUP_FAILURE
from uvicorn.supervisors.multiprocess import Multiprocess, Process

from zoo.errors import UsageError, ZooError
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
        (family, _, _, _, place), *_ = socket.getaddrinfo(
            address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        server_socket = socket.socket(family, socket.SOCK_STREAM)
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
        _Server(_config(functools.partial(create_app, settings, models, on_start))).run(
            [server_socket]
        )
        return
    if settings.load_options.get("threads") is None:
        settings.load_options["threads"] = max(1, usable_cores() // workers)
    with tempfile.TemporaryDirectory(prefix="zoo-serve-") as folder:
        # prometheus_client reads it when it is imported, which only the new processes do.
        os.environ["PROMETHEUS_MULTIPROC_DIR"] = folder
        settings.metrics_folder = folder
        app = functools.partial(_worker_app, settings, log_level)
        _Workers(_config(app, workers=workers), [server_socket], on_start).run()


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
    threading.Thread(target=_end_with_parent, daemon=True).start()
    try:
        models = load_models(settings.models, settings.load_options, settings.max_seq_len)
    except ZooError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(STARTUP_FAILURE)
    return create_app(settings, models)


def _end_with_parent() -> None:
    """End the process when the one that has started it ends without a signal."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os.kill(os.getpid(), signal.SIGTERM)


class _Server(uvicorn.Server):
    """A server for which a signal is the usual end, and not an error of the command."""

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


class _Workers(Multiprocess):
    """Several processes that share a socket; one that ends is replaced.

    Args:
        config: settings of uvicorn.
        sockets: the sockets.
        on_start: called when the first process answers requests.
    """

    def __init__(
        self, config: uvicorn.Config, sockets: list[socket.socket], on_start: Callable[[], None]
    ) -> None:
        super().__init__(config, sockets)
        self._on_start = on_start

    @override
    def init_processes(self) -> None:
        super().init_processes()
        for process in self.processes:
            if not process.wait_until_ready(START_SECONDS, self.should_exit):
                for other in self.processes:
                    other.kill()
                self.join_all()
                raise UsageError("a process of the server did not start", "see the error above")
        self._on_start()

    @override
    def keep_subprocess_alive(self) -> None:
        for index, process in enumerate(self.processes):
            if process.process.is_alive() or self.should_exit.is_set():
                continue
            process.join()
            LOG.error("a process has ended", extra={"pid": process.pid, "code": process.exitcode})
            _forget_gauges(process.pid)
            new_process = Process(self.config, self.sockets)
            new_process.start()
            self.processes[index] = new_process


def _forget_gauges(pid: int | None) -> None:
    """Remove the gauges of a process that has ended; its counters stay."""
    from prometheus_client.multiprocess import mark_process_dead

    mark_process_dead(pid)  # type: ignore[no-untyped-call]
