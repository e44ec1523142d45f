"""The command line of an installed version of the project."""

import json
import os
import subprocess
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

FORKS = Path(__file__).with_name("forks.py")
# One thread, so that sums do not depend on the number of cores, and a terminal of a fixed width.
VARIABLES = {
    "OMP_NUM_THREADS": "1",
    "PYTHONHASHSEED": "0",  # Some versions write settings in the order of a set.
    "HF_HUB_OFFLINE": "1",
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    "COLUMNS": "100",
    "TERM": "dumb",
    "TZ": "UTC",
}


class CommandError(Exception):
    """A command that other results need failed."""


class Environment:
    """Commands of the version that an interpreter has installed, each in a process of its own.

    A fork of a process that has imported torch runs the command. Every thread has such a process.

    Args:
        python: the interpreter.
        home: ``$ZOO_HOME`` of the commands; ``None`` for that of this process.
        path: folders with further distributions.
    """

    def __init__(self, python: str, home: Path | None = None, path: Sequence[Path] = ()) -> None:
        self.python = os.path.abspath(python)
        self.variables = {**os.environ, **VARIABLES}
        if home is not None:
            self.variables |= {"ZOO_HOME": str(home), "HF_HOME": str(home)}
        if path:
            self.variables["PYTHONPATH"] = os.pathsep.join(map(str, path))
        self._thread = threading.local()
        self._lock = threading.Lock()
        self._waiting: list[subprocess.Popen[str]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for process in self._waiting:
            process.communicate()  # it ends at the end of its input

    @property
    def steps(self) -> str:
        """Option for the number of steps; versions before 0.2 have another one."""
        return "--max-steps" if "--max-steps" in self.zoo("pretrain", "--help") else "--steps"

    def zoo(self, *arguments: object) -> str:
        """Return the standard output of a command, which has to succeed."""
        done = self.run(*arguments)
        if done.returncode:
            words = " ".join(map(str, done.args))
            raise CommandError(f"zoo {words}: exit code {done.returncode}\n{done.stderr}")
        return done.stdout

    def json(self, *arguments: object) -> Any:
        """Return the object that a command prints with ``--json``."""
        return json.loads(self.zoo(*arguments, "--json"))

    def run(
        self, *arguments: object, folder: Path = Path("/")
    ) -> "subprocess.CompletedProcess[str]":
        """Run a command in a directory, and return its result."""
        words = [str(argument) for argument in arguments]
        waiting = self._process()
        assert waiting.stdin is not None and waiting.stdout is not None
        with tempfile.TemporaryDirectory() as temporary:
            output = Path(temporary, "output")
            errors = Path(temporary, "errors")
            order = {
                "arguments": words,
                "folder": str(folder),
                "output": str(output),
                "errors": str(errors),
            }
            print(json.dumps(order), file=waiting.stdin, flush=True)
            answer = waiting.stdout.readline()
            if not answer:
                self._thread.process = None
                code = waiting.wait()
                raise CommandError(f"the process that runs commands ended with exit code {code}")
            code = int(answer)
            return subprocess.CompletedProcess(
                words,
                code,
                output.read_text("utf-8", "replace"),
                errors.read_text("utf-8", "replace"),
            )

    def program(self, file: Path, *arguments: object) -> str:
        """Return what a program prints that this environment's interpreter runs."""
        command = [self.python, "-P", str(file), *map(str, arguments)]
        done = subprocess.run(
            command, capture_output=True, text=True, env=self.variables, cwd="/", check=False
        )
        if done.returncode:
            raise CommandError(f"{' '.join(command)}\n{done.stderr}")
        return done.stdout

    def _process(self) -> "subprocess.Popen[str]":
        """Return the process of this thread whose forks run commands."""
        process: subprocess.Popen[str] | None = getattr(self._thread, "process", None)
        if process is None:
            process = subprocess.Popen(
                [self.python, "-P", str(FORKS)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                env=self.variables,
                cwd="/",
            )
            self._thread.process = process
            with self._lock:
                self._waiting.append(process)
        return process
