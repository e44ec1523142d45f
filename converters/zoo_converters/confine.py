"""Taking from this process what reading tensors does not need, before it reads any.

Three fences, each for where the one before ends:

* Limits on memory, file size, CPU time and processes, set by ``setrlimit``. On memory they hold on
  Linux alone.
* An audit hook: Python code can no longer open sockets, start programs, or open files for writing.
  Native code can.
* On Linux, x86-64 and ARM64, a seccomp filter (``syscalls``): native code cannot either.

Files can still be read, and those that are open can be written.
"""

import contextlib
import os
import resource
import sys
from pathlib import Path
from typing import Any

FORBIDDEN = (
    "socket.",
    "subprocess.",
    "pty.",
    "shutil.",
    "tempfile.",
    "ctypes.",
    "os.system",
    "os.exec",
    "os.fork",
    "os.posix_spawn",
    "os.spawn",
    "os.kill",
    "os.remove",
    "os.rename",
    "os.rmdir",
    "os.mkdir",
    "os.link",
    "os.symlink",
    "os.truncate",
    "os.ch",  # chmod, chown, chflags, chdir, chroot
)
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


def limit_resources(*, memory: int, output: int, seconds: int) -> None:
    """Limit what this process may use from now on.

    Args:
        memory: bytes of memory beyond what it has now.
        output: the largest file it may write, in bytes.
        seconds: seconds of CPU time.
    """
    limits = {"RLIMIT_CORE": 0, "RLIMIT_FSIZE": output, "RLIMIT_CPU": seconds, "RLIMIT_NPROC": 0}
    with contextlib.suppress(FileNotFoundError):  # outside of Linux
        pages = [int(count) for count in Path("/proc/self/statm").read_text().split()]
        limits["RLIMIT_AS"] = pages[0] * resource.getpagesize() + memory
        limits["RLIMIT_DATA"] = pages[5] * resource.getpagesize() + memory
    for name, value in limits.items():
        kind = getattr(resource, name, None)
        if kind is not None:
            hard = resource.getrlimit(kind)[1]
            value = value if hard == resource.RLIM_INFINITY else min(value, hard)
            resource.setrlimit(kind, (value, value))


def forbid_python() -> None:
    """Refuse sockets, programs and new files to Python code, for the rest of the process."""

    def refuse(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open":
            forbidden = not isinstance(arguments[0], int) and bool(arguments[2] & WRITING)
        else:
            forbidden = event.startswith(FORBIDDEN)
        if forbidden:
            raise PermissionError(f"{event} is not allowed here")

    sys.addaudithook(refuse)
