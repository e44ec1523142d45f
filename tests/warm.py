"""The command ``zoo`` in a process of its own that need not import torch: a fork of one that waits.

Most of what a short command takes is importing torch, and the reference library where a model is
verified. One process imports both, once, and runs each command in a fork of itself: with its own
environment, folder, standard streams and exit code, and with nothing of what tests have imported
or changed. What is imported when, how signals end a command and how an interpreter starts is
tested with processes that are started.
"""

import gc
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import IO, Any

from tests.conftest import reload_hub_settings
from zoo.cli import main

PRELOADED = "import torch, transformers; transformers.BertModel"


@dataclass(frozen=True)
class Signal:
    """A signal that a command gets while it runs.

    Attributes:
        number: the signal.
        after: seconds until then.
        changed: a directory; the seconds count from when a name in it was added or removed.
    """

    number: int
    after: float
    changed: Path


def zoo(
    *arguments: object, stdin: str = "", cwd: Path | None = None, **environment: str
) -> "subprocess.CompletedProcess[str]":
    """Run the command line as ``subprocess.run`` would, and return what it wrote."""
    return _zoo(arguments, stdin, cwd or Path.cwd(), environment, None)


def zoo_with_signal(signal: Signal, *arguments: object) -> "subprocess.CompletedProcess[str]":
    """Run the command line, with a signal while it runs."""
    return _zoo(arguments, "", Path.cwd(), {}, signal)


def _zoo(
    arguments: Sequence[object],
    stdin: str,
    folder: Path,
    environment: Mapping[str, str],
    signal: Signal | None,
) -> "subprocess.CompletedProcess[str]":
    words = [str(argument) for argument in arguments]
    with tempfile.TemporaryDirectory() as scratch:
        streams = [Path(scratch, name) for name in ("in", "out", "err")]
        streams[0].write_text(stdin)
        order = {
            "arguments": words,
            "folder": str(folder),
            "environment": {**os.environ, **environment},
            "streams": [str(path) for path in streams],
            "signal": signal and (signal.number, signal.after, str(signal.changed)),
        }
        waiting = _waiting()
        assert waiting.stdin is not None and waiting.stdout is not None
        print(json.dumps(order), file=waiting.stdin, flush=True)
        code = int(waiting.stdout.readline())
        return subprocess.CompletedProcess(words, code, *(p.read_text() for p in streams[1:]))


@cache
def _waiting() -> "subprocess.Popen[str]":
    """Start the process that waits; it ends with this one, which closes its standard input."""
    command = [sys.executable, "-m", "tests.warm"]
    return subprocess.Popen(
        command,
        cwd=Path(__file__).parents[1],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def _serve(orders: IO[str], answers: IO[str]) -> None:
    """Run each command in a fork, and answer its exit code, or minus the signal that ended it."""
    for line in orders:
        if not (child := os.fork()):
            _become(json.loads(line))
        if signal := json.loads(line)["signal"]:
            _send(child, *signal)
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), file=answers, flush=True)


def _send(child: int, number: int, after: float, changed: str) -> None:
    """Send a signal to a process that runs, or has ended and is not waited for yet."""
    before = os.listdir(changed)
    while os.listdir(changed) == before and not _ended(child):
        time.sleep(0.0005)
    time.sleep(after)
    os.kill(child, number)


def _ended(child: int) -> bool:
    return os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def _become(order: dict[str, Any]) -> None:
    """Be the command, and end as it does."""
    os.environ.clear()
    os.environ.update(order["environment"])
    sys.path[:0] = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
    reload_hub_settings()
    os.chdir(order["folder"])
    for number, path in enumerate(order["streams"]):
        os.dup2(os.open(path, os.O_RDWR | os.O_CREAT), number)
    main(order["arguments"])


if __name__ == "__main__":
    exec(PRELOADED)
    gc.freeze()  # or else each fork looks through all of it, and copies it, when it ends
    with open(os.dup(0)) as orders, open(os.dup(1), "w") as answers:
        _serve(orders, answers)
