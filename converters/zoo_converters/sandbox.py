"""Running ``loader`` in a process of its own, and taking tensors from it and nothing else.

The tensors come back in files without a name: whatever happens to either process, nothing is
left behind. What they hold is compared with what the scan has seen before the first is read.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import zoo
from zoo.errors import UsageError, VerificationError
from zoo.safetensors import SafetensorsReader
from zoo_converters.loader import DONE, MEMORY, REFUSED, SPACE, VERSION
from zoo_converters.torch_file import Contents

BOOT = """
import json, sys
job = json.load(sys.stdin)
sys.path += [path for path in job.pop("path") if path not in sys.path]
from zoo_converters.loader import main
main(job)
"""
ROOM = 1 << 28  # bytes of memory beyond the tensors, and much more than torch asks for
HEADERS = 1 << 25
START = 90  # seconds: importing torch from a cold disk
BYTES_PER_SECOND = 10_000_000  # of a slow network disk
# what the dynamic loader and torch's import need; no tokens, no proxies, nothing else
KEPT = ("PATH", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "HOME", "USER", "TMPDIR", "LANG", "LC_ALL")


@dataclass(frozen=True)
class Limits:
    """What the process may use.

    Attributes:
        memory: bytes, beyond what it has once torch is imported.
        output: the largest file it may write, in bytes.
        seconds: of its life, and of CPU time.
    """

    memory: int
    output: int
    seconds: int

    @classmethod
    def of(cls, files: Sequence[Contents]) -> "Limits":
        """Work out what the files need: a file in memory, and a copy of its largest tensor."""
        largest = max(info.nbytes for file in files for info in file.tensors.values())
        return cls(
            memory=max(file.size for file in files) + largest + ROOM,
            output=max(file.nbytes for file in files) + HEADERS,
            seconds=START + sum(file.size + file.nbytes for file in files) // BYTES_PER_SECOND,
        )


class Extracted:
    """The tensors of ``.bin`` files as safetensors, in files without a name.

    Args:
        files: what the scan found in each.
        limits: what reading them may use, by default what they need.

    Raises:
        VerificationError: torch refuses a file, what it finds is not what the scan found, or
            reading it takes more memory or time than it may.
        UsageError: torch is too old, or the temporary directory is too small.
    """

    def __init__(self, files: Sequence[Contents], limits: Limits | None = None) -> None:
        with ExitStack() as stack:
            outputs = [stack.enter_context(_unnamed()) for _ in files]
            _check_space(sum(file.nbytes for file in files))
            _run(files, outputs, limits or Limits.of(files))
            self.reader = SafetensorsReader([_path(output) for output in outputs])
            expected = {name: info for file in files for name, info in file.tensors.items()}
            if self.reader.tensors != expected:
                raise VerificationError(
                    f"{files[0].path}: torch finds other tensors in it than its pickle describes",
                    "do not use this checkpoint",
                )
            self._files = stack.pop_all()

    def close(self) -> None:
        """Close the files, which frees their space."""
        self.reader.close()
        self._files.close()


def _unnamed() -> IO[bytes]:
    try:
        return tempfile.TemporaryFile()
    except OSError as error:
        raise UsageError(
            f"no temporary file can be made: {error.strerror}", "set TMPDIR to another directory"
        ) from error


def _path(file: IO[bytes]) -> Path:
    """A path by which this process can open a file without a name anew."""
    file.seek(0)
    folder = Path("/proc/self/fd")
    return (folder if folder.is_dir() else Path("/dev/fd")) / str(file.fileno())


def _check_space(needed: int) -> None:
    folder = tempfile.gettempdir()
    if shutil.disk_usage(folder).free < needed:
        raise _no_space()


def _no_space() -> UsageError:
    return UsageError(
        f"{tempfile.gettempdir()} has no space for the tensors of a .bin file while it is read",
        "set TMPDIR to a roomier directory",
    )


def _run(files: Sequence[Contents], outputs: Sequence[IO[bytes]], limits: Limits) -> None:
    descriptors = [output.fileno() for output in outputs]
    job = {
        "path": _import_path(),
        "files": [_order(file, output) for file, output in zip(files, descriptors, strict=True)],
        "memory": limits.memory,
        "output": limits.output,
        "seconds": limits.seconds,
    }
    environment = {name: os.environ[name] for name in KEPT if name in os.environ}
    with _unnamed() as report:
        status = _finished(
            subprocess.Popen(
                [sys.executable, "-I", "-B", "-W", "ignore", "-c", BOOT],
                stdin=subprocess.PIPE,
                stdout=report,
                stderr=report,
                env=environment | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
                cwd="/",
                pass_fds=descriptors,
                start_new_session=True,
            ),
            json.dumps(job).encode(),
            limits.seconds,
        )
        _check_status(files, limits, status, _last_line(report))


def _finished(process: "subprocess.Popen[bytes]", job: bytes, seconds: int) -> int:
    """Return a process's exit status. It ends when this does, whatever the reason."""
    with process:
        try:
            process.communicate(job, seconds)
        except BaseException as error:
            process.kill()
            process.wait()
            if not isinstance(error, subprocess.TimeoutExpired):
                raise
            return -signal.SIGXCPU
    return process.returncode


def _order(file: Contents, output: int) -> dict[str, Any]:
    return {
        "path": str(file.path.absolute()),
        "zipped": file.zipped,
        "wrapper": file.wrapper,
        "tensors": file.tensors,
        "output": output,
    }


def _import_path() -> list[str]:
    """Where the process finds our modules and torch, however they are installed."""
    ours = [Path(__file__).parent.parent, Path(zoo.__file__).parent.parent]
    return [path for path in sys.path if os.path.isabs(path)] + [str(path) for path in ours]


def _last_line(report: IO[bytes]) -> str:
    report.seek(max(0, report.seek(0, os.SEEK_END) - 8192))
    return (report.read().decode(errors="replace").splitlines() or [""])[-1]


def _check_status(files: Sequence[Contents], limits: Limits, status: int, line: str) -> None:
    if status == DONE:
        return
    if status == SPACE:
        raise _no_space()
    if status == VERSION:
        raise UsageError(
            f"torch {line:.40} cannot read .bin files safely, 2.10 and newer can",
            'pip install -U "torch>=2.10"',
        )
    why = {
        REFUSED: f"was refused by torch: {line:.200}",
        MEMORY: f"needs more than {limits.memory >> 20} MiB of memory",
        -signal.SIGXCPU: f"took more than {limits.seconds} s and was stopped",
    }
    ended = signal.Signals(-status).name if status < 0 else f"status {status}: {line:.200}"
    raise _failed(files, why.get(status, f"ended with {ended}"))


def _failed(files: Sequence[Contents], why: str) -> VerificationError:
    what = files[0].path if len(files) == 1 else files[0].path.parent
    return VerificationError(f"{what}: reading it {why}", "nothing of it was taken")
