"""The command ``zoo`` in forks of a process that has imported torch, for fast tests.

Most of the time of a short command is the import of torch, transformers and our own modules. One
process imports all, once, and runs each command in a fork with its own environment, working
directory, standard streams and exit code. Tests of imports, signals and interpreter start use real
processes.
"""

import atexit
import contextlib
import ctypes
import gc
import importlib
import json
import os
import pkgutil
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
import time
import typing
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import IO, Any

import zoo as program
from tests.conftest import reload_hub_settings
from tests.exporter import fill_tables, keep_traces
from tests.once import shared
from tests.plugins.forked_checks import check_plugins_in_forks
from zoo.io.locks import file_lock

ZOO = "zoo.cli"
READY = "ready\n"
ROOT = Path(__file__).parents[1]
CONVERSION_MAPPING = "transformers.conversion_mapping"
HUGE_PAGE = 2 << 20  # bytes
MADV_HUGEPAGE, MADV_COLLAPSE = 14, 25  # of <linux/mman.h>; older systems ignore the second
PRELOADED = (
    "torch.utils.tensorboard",
    "transformers.models.bert.modeling_bert",
    # imported by the first optimizer, and by an export
    *("torch._dynamo", "torch._inductor.codecache", "torch.export._trace", "networkx"),
    *("onnxruntime.quantization", "onnxscript.rewriter", "torch.onnx._internal.exporter._core"),
)
OPTIONAL = ("s3fs", "fsspec.implementations.http")  # the extra `cloud`


@dataclass(frozen=True)
class Signal:
    """A signal sent to a running command.

    Attributes:
        number: signal number.
        after: delay in seconds.
        changed: directory; the delay starts when an entry of it is added or removed; ``None`` to
            start it with the command.
    """

    number: int
    after: float
    changed: Path | None


def zoo(
    *arguments: object, stdin: str = "", cwd: Path | None = None, **environment: str
) -> "subprocess.CompletedProcess[str]":
    """Run the command line; return the result as ``subprocess.run`` does."""
    return _run(arguments, [environment], stdin, cwd)


def in_processes(
    count: int, *arguments: object, module: str = ZOO
) -> "subprocess.CompletedProcess[str]":
    """Run the command line in several processes of one run, as ``torchrun`` starts them.

    Args:
        count: number of processes.
        *arguments: arguments of the command.
        module: module whose ``main`` takes the arguments.
    """
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    launch = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(count)}
    environments = [{**launch, "RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(count)]
    return _run(arguments, environments, module=module)


def run_pytest(
    *arguments: object, cwd: Path, **environment: str
) -> "subprocess.CompletedProcess[str]":
    """Run the tests of another project."""
    return _run(arguments, [environment], folder=cwd, module="pytest")


def check_plugin(name: str, cwd: Path, **environment: str) -> list[str]:
    """Run the quick checks of a plugin, as ``zoo plugins check`` does; return what they find."""
    done = _run([name], [environment], folder=cwd, module="tests.plugins.checking")
    assert done.returncode == 0, done.stderr
    findings: list[str] = json.loads(done.stdout)
    return findings


def python(code: str, cwd: Path, **environment: str) -> "subprocess.CompletedProcess[str]":
    """Run a program, as ``python -c`` does."""
    return _run([code], [environment], folder=cwd, module="tests.program")


def zoo_with_signal(sent: Signal, *arguments: object) -> "subprocess.CompletedProcess[str]":
    """Run the command line, and send it a signal."""
    return _run(arguments, [{}], sent=sent)


def at_once(
    *commands: Sequence[object], **environment: str
) -> "list[subprocess.CompletedProcess[str]]":
    """Run commands at the same time, each to its end; return their results in order."""
    with tempfile.TemporaryDirectory() as scratch:
        orders = []
        for number, command in enumerate(commands):
            streams = [Path(scratch, f"{name}{number}") for name in ("in", "out", "err")]
            streams[0].touch()
            order = {"module": ZOO, "arguments": [*map(str, command)], "folder": str(Path.cwd())}
            orders.append({**order, "streams": [*map(str, streams)]})
        together = {"together": orders, "environment": {**os.environ, **environment}}
        codes = _waiting().answer(together)
        return [
            subprocess.CompletedProcess(
                order["arguments"], code, *(Path(p).read_text() for p in order["streams"][1:])
            )
            for order, code in zip(orders, codes, strict=True)
        ]


def _run(
    arguments: Sequence[object],
    environments: Sequence[Mapping[str, str]],
    stdin: str = "",
    folder: Path | None = None,
    sent: Signal | None = None,
    module: str = ZOO,
) -> "subprocess.CompletedProcess[str]":
    words = [str(argument) for argument in arguments]
    with tempfile.TemporaryDirectory() as scratch:
        streams = [Path(scratch, name) for name in ("in", "out", "err")]
        streams[0].write_text(stdin)
        for path in streams[1:]:  # a signal may come before the process opens them
            path.touch()
        order = {
            "module": module,
            "arguments": words,
            "folder": str(folder or Path.cwd()),
            "environments": [{**os.environ, **environment} for environment in environments],
            "streams": [str(path) for path in streams],
            "signal": sent and (sent.number, sent.after, sent.changed and str(sent.changed)),
        }
        code = int(_waiting().answer(order))
        return subprocess.CompletedProcess(words, code, *(p.read_text() for p in streams[1:]))


def start() -> None:
    """Start the waiting process, so that the first command takes no longer than others."""
    _waiting()


class Waiting:
    """A connection to the waiting process.

    Args:
        connection: the connected socket.
    """

    def __init__(self, connection: socket.socket) -> None:
        self.orders = connection.makefile("w", encoding="utf-8")
        self.answers = connection.makefile("r", encoding="utf-8")

    def answer(self, order: Mapping[str, Any]) -> Any:
        """Send an order, and return what its processes ended with."""
        print(json.dumps(order), file=self.orders, flush=True)
        return json.loads(self.answers.readline())


@cache
def _waiting() -> Waiting:
    """Connect to the waiting process of the session, or start it.

    The workers of pytest-xdist share it: its imports take several seconds.
    """
    folder = shared("warm")
    with file_lock(folder / "lock"):
        port = folder / "port"
        connection = _connect(port) or _connect(_start(port))
    assert connection is not None, "the waiting process does not listen"
    return Waiting(connection)


def _connect(port: Path) -> socket.socket | None:
    """Connect to the process that has written its port to a file, if it is still there."""
    try:
        return socket.create_connection(("127.0.0.1", int(port.read_text())))
    except OSError:
        return None


_started: "list[subprocess.Popen[str]]" = []  # it ends when its standard input is closed


def _start(port: Path) -> Path:
    """Start the waiting process; return the file with its port."""
    waiting = subprocess.Popen(
        [sys.executable, "-m", "tests.warm", str(port)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    _started.append(waiting)
    assert waiting.stdout is not None
    assert waiting.stdout.readline() == READY, "the waiting process did not start"
    return port


def _import_all() -> None:
    """Import the modules of the program and of its own plugins, and fill tables of libraries."""
    for name in PRELOADED:
        importlib.import_module(name)
    for name in OPTIONAL:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    own = [str(ROOT / folder) for folder in ("plugins", "converters")]
    for path, prefix in ((program.__path__, "zoo."), (own, "")):
        for module in pkgutil.walk_packages(path, prefix):
            if not module.name.endswith("__main__"):
                importlib.import_module(module.name)
    # hundreds of regular expressions, which the first model of transformers compiles
    importlib.import_module(CONVERSION_MAPPING).get_checkpoint_conversion_mapping("bert")
    pages = importlib.import_module("zoo.report.html")._environment()
    for name in pages.list_templates():
        pages.get_template(name)  # which compiles it
    with importlib.import_module("zoo.exporting.graph.trace").silence():
        fill_tables(importlib.import_module("zoo.exporting.graph.opsets").DEFAULT_OPSET)
    keep_traces()
    check_plugins_in_forks()


def _forget_what_libraries_do_at_exit() -> None:
    """Leave out what a fork need not do when it ends, and takes longer than a small command.

    torch unregisters its operators, which copies as much memory as the command, and draws a table
    of the times of its compiler. nanobind empties the caches of ``typing``.
    """
    weakref.finalize._registry.clear()  # type: ignore[attr-defined]
    atexit.unregister(importlib.import_module("torch._dynamo.utils").dump_compile_times)
    typing._cleanups.clear()  # type: ignore[attr-defined]


def _use_huge_pages() -> None:
    """Gather the memory of this process in huge pages, if the system has them.

    Each fork copies the tables of all pages, and frees them when it ends, which otherwise takes
    longer than the smallest command.
    """
    madvise = ctypes.CDLL(None).madvise
    for line in Path("/proc/self/maps").read_text().splitlines():
        bounds, permissions, _, _, file, *name = line.split()
        if (permissions, file) == ("rw-p", "0") and name in ([], ["[heap]"]):
            start, end = (int(bound, 16) for bound in bounds.split("-"))
            start, end = -(-start // HUGE_PAGE) * HUGE_PAGE, end // HUGE_PAGE * HUGE_PAGE
            for advice in (MADV_HUGEPAGE, MADV_COLLAPSE) if start < end else ():
                madvise(ctypes.c_void_p(start), ctypes.c_size_t(end - start), advice)


def _accept(server: socket.socket) -> None:
    """Serve each connection in a fork, until the process that has started this one ends."""
    with selectors.DefaultSelector() as selector:
        selector.register(server, selectors.EVENT_READ)
        selector.register(0, selectors.EVENT_READ)
        while [key.fileobj for key, _ in selector.select()] == [server]:
            connection, _ = server.accept()
            if not os.fork():
                os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
                server.close()
                with connection.makefile("r") as orders, connection.makefile("w") as answers:
                    _serve(orders, answers)
                os._exit(0)
            connection.close()


def _serve(orders: IO[str], answers: IO[str]) -> None:
    """Run each command in forks; write its exit code, or the negative signal number."""
    for line in orders:
        order = json.loads(line)
        if "together" in order:
            begun = [_fork(each, order["environment"]) for each in order["together"]]
            ended = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in begun]
            print(json.dumps(ended), file=answers, flush=True)
            continue
        children = [_fork(order, environment) for environment in order["environments"]]
        if sent := order["signal"]:
            _send(children[0], *sent)
        print(_wait(children), file=answers, flush=True)


def _fork(order: dict[str, Any], environment: Mapping[str, str]) -> int:
    """Run a command in a fork, and return its process id."""
    if not (child := os.fork()):
        _become(order, environment)
    return child


def _wait(children: Sequence[int]) -> int:
    """Return the exit code of processes; the failure of one ends the others, as in ``torchrun``."""
    running = set(children)
    while running:
        child, status = os.wait()
        running.remove(child)
        if code := os.waitstatus_to_exitcode(status):
            for other in running:
                os.kill(other, signal.SIGKILL)
                os.waitpid(other, 0)
            return code
    return 0


def _send(child: int, number: int, after: float, changed: str | None) -> None:
    """Send a signal to a child process, which may have ended."""
    before = os.listdir(changed) if changed else []
    while changed and os.listdir(changed) == before and not _ended(child):
        time.sleep(0.0005)
    until = time.monotonic() + after
    while (left := until - time.monotonic()) > 0 and not _ended(child):
        time.sleep(min(left, 0.01))
    os.kill(child, number)


def _ended(child: int) -> bool:
    return os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def _become(order: dict[str, Any], environment: Mapping[str, str]) -> None:
    """Run the command in this process, and end it.

    It ends at once: freeing the objects of all modules would copy the memory of the waiting
    process, which takes longer than most commands.
    """
    os.environ.clear()
    os.environ.update(environment)
    sys.path[:0] = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
    reload_hub_settings()
    os.chdir(order["folder"])
    for number, path in enumerate(order["streams"]):
        os.dup2(os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND), number)
    code = 0
    try:
        sys.argv = ["zoo", *order["arguments"]]  # Reports and runs record the command.
        code = int(importlib.import_module(order["module"]).main(order["arguments"]) or 0)
    except SystemExit as ended:
        code = int(ended.code or 0)
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    gc.disable()
    _import_all()
    gc.enable()
    # Otherwise the garbage collector of each fork touches, and thereby copies, all memory at exit.
    gc.freeze()
    _forget_what_libraries_do_at_exit()
    if sys.platform == "linux":
        _use_huge_pages()
    with socket.create_server(("127.0.0.1", 0)) as listening:
        Path(sys.argv[1]).write_text(str(listening.getsockname()[1]))
        print(READY, end="", flush=True)
        _accept(listening)
