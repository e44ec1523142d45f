"""Checks of plugins in forks: ``zoo plugins check`` starts a process for each plugin.

Most of the time of such a process is the import of torch, which the command that ``tests/warm.py``
runs has imported. Tests of ``check_plugin`` itself start real processes.
"""

import importlib
import os
import runpy
import signal
import subprocess
import sys
import time
import types
from collections.abc import Mapping, Sequence
from typing import Any


def check_plugins_in_forks() -> None:
    """Let this process and its forks check plugins in forks."""
    names = ("DEVNULL", "TimeoutExpired")
    kept = {name: getattr(subprocess, name) for name in names}
    module: Any = importlib.import_module("zoo.conformance.plugin_checks")
    module.subprocess = types.SimpleNamespace(Popen=Fork, **kept)


class Fork:
    """A process that runs a module, with the methods of ``subprocess.Popen`` that checks need."""

    def __init__(self, command: Sequence[str], *, env: Mapping[str, str], **options: Any) -> None:
        self._command = command
        self._code: int | None = None
        self._pid = os.fork()
        if not self._pid:
            self._run(env)

    def _run(self, environment: Mapping[str, str]) -> None:
        """Run the module as ``python -m`` does, and end the process."""
        code = 1
        try:
            os.environ.update(environment)
            null = os.open(os.devnull, os.O_RDWR)
            for stream in range(3):
                os.dup2(null, stream)
            _, option, module, *arguments = self._command
            assert option == "-m"
            sys.argv = [module, *arguments]
            runpy.run_module(module, run_name="__main__")
            code = 0
        except SystemExit as ended:
            code = int(ended.code or 0)
        finally:
            os._exit(code)

    def wait(self, seconds: float | None = None) -> int:
        """Return the exit code, or the negative signal number."""
        limit = time.monotonic() + (seconds or 0.0)
        while self._code is None:
            ended, status = os.waitpid(self._pid, 0 if seconds is None else os.WNOHANG)
            if ended:
                self._code = os.waitstatus_to_exitcode(status)
            elif seconds is not None and time.monotonic() > limit:
                raise subprocess.TimeoutExpired(self._command, seconds)
            else:
                time.sleep(0.005)
        return self._code

    def kill(self) -> None:
        if self._code is None:
            os.kill(self._pid, signal.SIGKILL)
