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
from functools import cache
from pathlib import Path
from typing import IO, Any

from tests.conftest import reload_hub_settings
from zoo.cli import main

PRELOADED = "import torch, transformers; transformers.BertModel"


def zoo(
    *arguments: object, stdin: str = "", cwd: Path | None = None, **environment: str
) -> "subprocess.CompletedProcess[str]":
    """Run the command line as ``subprocess.run`` would, and return what it wrote."""
    words = [str(argument) for argument in arguments]
    with tempfile.TemporaryDirectory() as folder:
        streams = [Path(folder, name) for name in ("in", "out", "err")]
        streams[0].write_text(stdin)
        order = {
            "arguments": words,
            "folder": str(cwd or Path.cwd()),
            "environment": {**os.environ, **environment},
            "streams": [str(path) for path in streams],
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
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), file=answers, flush=True)


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
