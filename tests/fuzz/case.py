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
from unittest import mock

from tests.fuzz.reader import Reader, copy
from zoo.errors import ZooError

CPU_SECONDS = 15
WALL_SECONDS = 90
HANGS = "hangs"  # failure of a case that reaches one of these limits
ADDRESS_SPACE = 2 << 30  # in addition to the parent's, which has imported torch
RESIDENT = 700 << 20  # in addition to an idle fork's
REFUSED = (2, 3, 4)
VALUES = re.compile(r"""'[^']*'|"[^"]*"|`[^`]*`|\S*[0-9/]\S*""")  # in messages
# functions that raise the errors of many readers
SHARED_CHECKS = ("zoo/io/sizes.py", "zoo/io/untrusted.py", "zoo/data/readers/problems.py")
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
        check: place in the source of the check that refused the files, or empty.
        size: bytes of all files of the case.
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
    check: str = ""
    size: int = 0


@dataclass(frozen=True)
class Execution:
    """Result of the commands of a case; for the attributes, see ``Outcome``."""

    code: int
    failure: str
    stderr: str
    seconds: float
    peak: int
    check: str


class Runner:
    """Run cases in forks of this process, which has imported the modules of all commands.

    Args:
        examples: directory of the valid examples, one for each reader.
        scratch: folder for the cases, on a memory disk if there is one.
        keep: folder that failed cases are moved to, or ``None``.
    """

    def __init__(self, examples: Path, scratch: Path, keep: Path | None = None) -> None:
        self.examples = examples
        self.scratch = scratch
        self.keep = keep
        self.resident = _fork_size()

    def run(self, reader: Reader, seed: int, number: int) -> Outcome:
        """Run a case, and return its outcome."""
        random = Random(f"{seed}:{reader.name}:{number}")
        folder = self.scratch / "case"
        shutil.rmtree(folder, ignore_errors=True)
        copy(self.examples / reader.name, folder)
        mutation = reader.mutate(folder / "scene", random)
        commands = reader.commands(random)
        size = _size(folder / "scene")
        done = self.execute(reader, folder, commands)
        outcome = Outcome(
            reader.name,
            seed,
            number,
            mutation,
            done.code,
            done.failure,
            done.stderr,
            done.seconds,
            done.peak,
            done.check,
            size,
        )
        if done.failure and self.keep is not None:
            _keep(self.keep, folder, outcome, commands)
        return outcome

    def execute(self, reader: Reader, folder: Path, commands: list[list[str]]) -> Execution:
        """Run commands in the scene of a folder, and check what they do."""
        status, usage = self._fork(reader, folder, commands)
        verdict = _verdict(folder, status)
        peak = max(0, usage.ru_maxrss * 1024 - self.resident)
        failure = verdict["failure"]
        if not failure and peak > RESIDENT:
            failure = f"{peak >> 20} MB of memory"
        seconds = round(usage.ru_utime + usage.ru_stime, 3)
        return Execution(
            verdict["code"], failure, verdict["stderr"], seconds, peak, verdict["check"]
        )

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
        caught = list[BaseException]()
        for command in commands:
            before = _files(scene)
            code = run_zoo(command, folder, caught)
            stderr = (folder / "err").read_text("utf-8", "backslashreplace")
            if code:
                check = place_of_check(caught)
                failure = refusal_fault(code, stderr, scene, reader.names())
                failure = failure or _left_behind(scene, before, reader.may_leave(stderr))
                _write(folder, code, failure, stderr, check)
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


def _size(folder: Path) -> int:
    """Return the bytes of all regular files, without links."""
    files = (path for path in folder.rglob("*") if path.is_file() and not path.is_symlink())
    return sum(path.stat().st_size for path in files)


def place_of_check(caught: Sequence[BaseException]) -> str:
    """Return file, line and function that raised the error of a command, if it is zoo's own."""
    if not caught:
        return ""
    frames = traceback.extract_tb(caught[-1].__traceback__)
    own = [frame for frame in frames if "/zoo/" in frame.filename or "/zoo_" in frame.filename]
    # a check that many readers call is told apart by its caller
    places = [frame for frame in own if not frame.filename.endswith(SHARED_CHECKS)]
    if not places:
        return type(caught[-1]).__name__
    path = Path(places[-1].filename)
    root = next(name for name in ("zoo", "converters", "plugins") if name in path.parts)
    relative = "/".join(path.parts[path.parts.index(root) :])
    place = f"{relative}:{places[-1].lineno} {places[-1].name}"
    cause = caught[-1].__cause__
    if cause is None or isinstance(cause, ZooError):
        return place
    # a library has checks of its own, which its messages tell apart
    words = re.sub(r"[^A-Za-z ]+", " ", VALUES.sub("", str(cause))).split()
    return f"{place}: {type(cause).__name__}: {' '.join(words[:6])}"


def run_zoo(
    arguments: Sequence[str], folder: Path, caught: list[BaseException] | None = None
) -> int:
    """Run a command as ``python -m zoo`` does, with standard streams in files.

    Args:
        caught: is extended by the error that ends the command.
    """
    from zoo.cli import failure, main

    report = failure.report

    def noting(error: BaseException, arguments: Sequence[str]) -> int:
        if caught is not None:
            caught.append(error)
        return report(error, arguments)

    for number, name in enumerate(("in", "out", "err")):
        path = folder / name
        handle = os.open(path, os.O_RDWR | os.O_CREAT | (os.O_TRUNC if number else 0))
        os.dup2(handle, number)
        os.close(handle)
    sys.stdin = _stream(0, "r")
    sys.stdout = _stream(1, "w")
    sys.stderr = _stream(2, "w")
    try:
        with mock.patch.object(failure, "report", noting):
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


def _write(folder: Path, code: int, failure: str, stderr: str, check: str = "") -> None:
    short = stderr if len(stderr) < 2000 else stderr[:1000] + " [...] " + stderr[-1000:]
    record = {"code": code, "failure": failure, "stderr": short, "check": check}
    text = json.dumps(record)
    (folder / "verdict").write_text(text)


def _verdict(folder: Path, status: int) -> dict[str, Any]:
    """Return the verdict that the child wrote; a missing verdict is a failure."""
    path = folder / "verdict"
    if status == 0 and path.exists():
        verdict: dict[str, Any] = json.loads(path.read_text())
        return verdict
    error = folder / "err"
    text = error.read_text("utf-8", "replace")[-1000:] if error.exists() else ""
    why = HANGS if status in (-signal.SIGKILL, -signal.SIGXCPU) else f"ends by {status}"
    return {"code": status, "failure": why, "stderr": text, "check": ""}


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
