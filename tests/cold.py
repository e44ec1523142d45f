"""The command ``zoo`` in forks of a process that has imported only its command line.

For tests of what a command imports, of which the start of an interpreter takes most of the time.
``tests/warm.py`` has imported all, for tests of what a command does.
"""

import contextlib
import importlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[1]
PROGRAM = "zoo.cli"
SLOW = ("torch", "onnx", "onnxruntime", "transformers")


class Result(NamedTuple):
    """Exit code, standard output and standard error of a command, and the modules it imported."""

    returncode: int
    stdout: str
    stderr: str
    modules: set[str]


def zoo(*arguments: object, cwd: Path | None = None, **environment: str) -> Result:
    """Run the command line."""
    return _run(arguments, cwd, environment, keep_imports=False)


def zoo_again(*arguments: object, cwd: Path | None = None, **environment: str) -> Result:
    """Run the command line in a process that has imported what former commands have.

    It has not imported modules that take a second. Most tests ask for those.
    """
    return _run(arguments, cwd, environment, keep_imports=True)


def _run(
    arguments: Sequence[object],
    folder: Path | None,
    environment: Mapping[str, str],
    *,
    keep_imports: bool,
) -> Result:
    with tempfile.TemporaryDirectory() as scratch:
        streams = [Path(scratch, name) for name in ("out", "err", "modules")]
        order = {
            "arguments": [str(argument) for argument in arguments],
            "folder": str(folder or Path.cwd()),
            "environment": {**os.environ, **environment},
            "streams": [str(path) for path in streams],
        }
        waiting = _waiting(keep_imports)
        assert waiting.stdin is not None and waiting.stdout is not None
        print(json.dumps(order), file=waiting.stdin, flush=True)
        code = int(waiting.stdout.readline())
        stdout, stderr, modules = (path.read_text("utf-8") for path in streams)
        return Result(code, stdout, stderr, set(json.loads(modules)))


@cache
def _waiting(keep_imports: bool) -> "subprocess.Popen[str]":
    """Start the waiting process; it ends when its standard input is closed."""
    return subprocess.Popen(
        [sys.executable, "-m", "tests.cold", *(["keep-imports"] if keep_imports else [])],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def _become(order: Mapping[str, Any]) -> None:
    """Run a command in this process, write what it has imported, and end the process."""
    os.environ.clear()
    os.environ.update(order["environment"])
    sys.path[:0] = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
    os.chdir(order["folder"])
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    for number, path in enumerate(order["streams"][:2], 1):
        os.dup2(os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND), number)
    arguments: Sequence[str] = order["arguments"]
    sys.argv = ["zoo", *arguments]
    code = 0
    try:
        importlib.import_module(PROGRAM).main([*arguments])
    except SystemExit as ended:
        code = int(ended.code or 0)
    sys.stdout.flush()
    sys.stderr.flush()
    Path(order["streams"][2]).write_text(json.dumps([*sys.modules]), "utf-8")
    os._exit(code)


def _import_like(path: str) -> None:
    """Import the modules that a command has imported, unless it has a slow one."""
    modules = json.loads(Path(path).read_text("utf-8"))
    if not {*SLOW} & {*modules}:
        for name in modules:
            with contextlib.suppress(ImportError):  # a module of another program
                importlib.import_module(name)


def _serve(*, keep_imports: bool) -> None:
    """Run each command in a fork, and write its exit code, or the negative signal number."""
    importlib.import_module(PROGRAM)
    with open(os.dup(0)) as orders, open(os.dup(1), "w") as answers:
        for line in orders:
            order = json.loads(line)
            if not (child := os.fork()):
                _become(order)
            _, status = os.waitpid(child, 0)
            if keep_imports:
                _import_like(order["streams"][2])
            print(os.waitstatus_to_exitcode(status), file=answers, flush=True)


if __name__ == "__main__":
    _serve(keep_imports="keep-imports" in sys.argv)
