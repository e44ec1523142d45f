"""Execution of one case: a mutated example, commands in a fork with limits, and the verdict."""

import contextlib
import json
import os
import re
import resource
import shutil
import signal
import stat
import sys
import time
import traceback
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from random import Random
from typing import IO, Any

from tests.fuzz.reader import Reader, copy

CPU_SECONDS = 15
WALL_SECONDS = 90
ADDRESS_SPACE = 2 << 30  # in addition to the parent's, which has imported torch
RESIDENT = 700 << 20  # in addition to an idle fork's
REFUSED = (2, 3, 4)
CONTROL = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")


@dataclass(frozen=True)
class Outcome:
    """Result of a case.

    Attributes:
        reader: name of the reader.
        seed, number: identify the case; together with the reader they determine the mutation.
        mutation: file and kind of the mutation.
        code: exit code of the last command, negative for a signal.
        failure: description of the failure, or empty.
        stderr: standard error of the last command, shortened.
        seconds: CPU time.
        peak: resident memory in bytes, in addition to an idle fork's.
    """

    reader: str
    seed: int
    number: int
    mutation: str
    code: int
    failure: str
    stderr: str
    seconds: float
    peak: int


class Runner:
    """Run cases in forks of this process, which has imported the modules of all commands.

    Args:
        examples: directory of the valid examples, one for each reader.
        scratch: folder for the cases, on a memory disk if there is one.
        keep: folder that failed cases are moved to, or ``None``.
    """

    def __init__(self, examples: Path, scratch: Path, keep: Path | None = None) -> None:
        self.examples, self.scratch, self.keep = examples, scratch, keep
        self.resident = _fork_size()

    def run(self, reader: Reader, seed: int, number: int) -> Outcome:
        """Run a case, and return its outcome."""
        random = Random(f"{seed}:{reader.name}:{number}")
        folder = self.scratch / "case"
        shutil.rmtree(folder, ignore_errors=True)
        copy(self.examples / reader.name, folder)
        mutation = reader.mutate(folder / "scene", random)
        commands = reader.commands(random)
        status, usage = self._fork(reader, folder, commands)
        verdict = _verdict(folder, status)
        peak = max(0, usage.ru_maxrss * 1024 - self.resident)
        failure = verdict["failure"]
        if not failure and peak > RESIDENT:
            failure = f"{peak >> 20} MB of memory"
        outcome = Outcome(
            reader.name,
            seed,
            number,
            mutation,
            verdict["code"],
            failure,
            verdict["stderr"],
            round(usage.ru_utime + usage.ru_stime, 3),
            peak,
        )
        if failure and self.keep is not None:
            _keep(self.keep, folder, outcome, commands)
        return outcome

    def _fork(
        self, reader: Reader, folder: Path, commands: list[list[str]]
    ) -> tuple[int, resource.struct_rusage]:
        sys.stdout.flush()
        child = os.fork()
        if not child:
            try:
                self._become(reader, folder, commands)
            except BaseException:
                _write(folder, -1, f"the fuzzer itself: {traceback.format_exc()}", "")
            finally:
                os._exit(0)
        return _wait(child)

    def _become(self, reader: Reader, folder: Path, commands: list[list[str]]) -> None:
        os.setsid()
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS + 2))
        address_space = _status("VmSize") + ADDRESS_SPACE
        resource.setrlimit(resource.RLIMIT_AS, (address_space, address_space))
        scene = folder / "scene"
        os.chdir(scene)
        os.environ["ZOO_HOME"] = str(scene / "home")
        os.environ["HOME"] = str(scene)
        os.environ["TMPDIR"] = str(folder)
        for command in commands:
            before = _files(scene)
            code = run_zoo(command, folder)
            stderr = (folder / "err").read_text("utf-8", "backslashreplace")
            if code:
                failure = refusal_fault(code, stderr, scene, reader.names())
                failure = failure or _left_behind(scene, before, reader.may_leave(stderr))
                _write(folder, code, failure, stderr)
                return
            if CONTROL.search(stderr):
                _write(folder, code, "control characters on standard error", stderr)
                return
        try:
            difference = reader.check(scene)
        except BaseException as error:
            stack = "".join(traceback.format_exception(error)[-3:])
            difference = f"the independent reader refuses: {type(error).__name__}: {stack}"
        _write(folder, 0, difference, "")


def refusal_fault(code: int, stderr: str, folder: Path, also_named: Sequence[str] = ()) -> str:
    """Check exit code, single line and file name of an error; return the fault, or ``""``.

    An indented list of rows may follow the line.
    """
    if code not in REFUSED:
        return f"exit code {code}"
    errors = [line for line in stderr.split("\n") if line.startswith("error: ")]
    if len(errors) != 1:
        return f"{len(errors)} lines begin with error:"
    after = stderr.rpartition(errors[0] + "\n")[2].splitlines()
    if not stderr.endswith("\n") or [line for line in after if not line.startswith("  ")]:
        return "the error is not the last line before a list of rows"
    if CONTROL.search(stderr):
        return "control characters on standard error"
    if len(errors[0]) > 3000:
        return f"a line of {len(errors[0])} characters"
    told = "\n".join((errors[0], *after))
    if not any(name in told for name in (*also_named, *(p.name for p in _files(folder)))):
        return "names no file"
    return ""


def _left_behind(scene: Path, before: set[Path], allowed: Sequence[str]) -> str:
    """Return the files that a failed command left; store and caches in ``home`` may change."""
    left = sorted(
        str(path.relative_to(scene))
        for path in _files(scene) - before
        if path.relative_to(scene).parts[0] not in ("home", *allowed)
    )
    return f"left behind: {', '.join(left[:5])}" if left else ""


def _files(folder: Path) -> set[Path]:
    return set(folder.rglob("*"))


def run_zoo(arguments: Sequence[str], folder: Path) -> int:
    """Run a command as ``python -m zoo`` does, with standard streams in files."""
    from zoo.cli import main

    for number, name in enumerate(("in", "out", "err")):
        path = folder / name
        handle = os.open(path, os.O_RDWR | os.O_CREAT | (os.O_TRUNC if number else 0))
        os.dup2(handle, number)
        os.close(handle)
    sys.stdin, sys.stdout, sys.stderr = _stream(0, "r"), _stream(1, "w"), _stream(2, "w")
    try:
        main(list(arguments))
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else 1
    except BaseException:
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    return code


def _stream(handle: int, mode: str) -> IO[str]:
    return open(handle, mode, closefd=False)


def _write(folder: Path, code: int, failure: str, stderr: str) -> None:
    short = stderr if len(stderr) < 2000 else stderr[:1000] + " [...] " + stderr[-1000:]
    text = json.dumps({"code": code, "failure": failure, "stderr": short})
    (folder / "verdict").write_text(text)


def _verdict(folder: Path, status: int) -> dict[str, Any]:
    """Return the verdict that the child wrote; a missing verdict is a failure."""
    path = folder / "verdict"
    if status == 0 and path.exists():
        verdict: dict[str, Any] = json.loads(path.read_text())
        return verdict
    error = folder / "err"
    text = error.read_text("utf-8", "replace")[-1000:] if error.exists() else ""
    why = "hangs" if status in (-signal.SIGKILL, -signal.SIGXCPU) else f"ends by {status}"
    return {"code": status, "failure": why, "stderr": text}


def _wait(child: int) -> tuple[int, resource.struct_rusage]:
    """Wait for a child; kill its session after the time limit."""
    until = time.monotonic() + WALL_SECONDS
    pause = 0.001
    while time.monotonic() < until:
        pid, status, usage = os.wait4(child, os.WNOHANG)
        if pid:
            _end_session(child)
            return os.waitstatus_to_exitcode(status), usage
        time.sleep(pause)
        pause = min(pause * 1.3, 0.02)
    _end_session(child)
    _, status, usage = os.wait4(child, 0)
    return -signal.SIGKILL, usage


def _end_session(child: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(child, signal.SIGKILL)


def _keep(keep: Path, folder: Path, outcome: Outcome, commands: list[list[str]]) -> None:
    """Copy the files of a failed case, and write the command that repeats it."""
    target = keep / f"{outcome.reader}-{outcome.seed}-{outcome.number}"
    shutil.rmtree(target, ignore_errors=True)
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copytree(folder, target, symlinks=True, copy_function=_copy_any)
    text = json.dumps({**asdict(outcome), "commands": commands}, indent=2)
    (target / "outcome.json").write_text(text)


def _copy_any(source: str, target: str) -> None:
    if stat.S_ISFIFO(os.stat(source).st_mode):
        os.mkfifo(target)
    else:
        shutil.copy2(source, target)


def _fork_size() -> int:
    """Return the resident memory of a fork that does nothing, in bytes."""
    child = os.fork()
    if not child:
        os._exit(0)
    return os.wait4(child, 0)[2].ru_maxrss * 1024


def _status(name: str) -> int:
    """Return a memory figure of this process in bytes, from ``/proc/self/status``."""
    text = Path("/proc/self/status").read_text()
    match = re.search(rf"{name}:\s+(\d+) kB", text)
    assert match is not None, "the kernel reports it"
    return int(match[1]) * 1024
