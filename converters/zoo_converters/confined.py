"""Calling a function in a process that may use little memory and time, and open no other files.

For libraries in C that read strangers' files: a crash, endless work or a claim of terabytes ends
that process alone.
"""

import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import zoo
from zoo.errors import VerificationError

BOOT = """
import json, sys
job = json.load(sys.stdin)
sys.path += [path for path in job.pop("import_path") if path not in sys.path]
from importlib import import_module
from zoo_converters.confined import serve
serve(getattr(import_module(job.pop("module")), job.pop("function")), job)
"""
MAX_ANSWER = 1 << 26  # bytes of JSON
START_SECONDS = 10  # importing libraries from a cold disk
DONE, REFUSED = 0, 3
# what the dynamic loader needs, and nothing secret; HDF5 shall not load plugins that a file names
ENVIRONMENT = ("PATH", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "HOME", "TMPDIR", "LANG", "LC_ALL")
SETTINGS = {"HDF5_PLUGIN_PRELOAD": "::", "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}


def call_confined(
    function: Callable[..., Any],
    path: Path,
    arguments: Mapping[str, Any],
    *,
    memory: int,
    seconds: int,
    output: int | None = None,
) -> Any:
    """Call a function in a process of its own, and return its result, which is JSON.

    Args:
        function: a function of a module. Once it has imported what it needs, it calls
            ``limit_resources``; once it has opened the file, ``forbid_files``.
        path: the file that it reads, for messages.
        arguments: keyword arguments, of JSON.
        memory: bytes that the process may use, beyond what it has after its imports.
        seconds: its CPU time; it is stopped after some more.
        output: descriptor of a file that it writes to.

    Raises:
        VerificationError: the function raised an error, crashed, or used more than it may.
    """
    job = {
        **arguments,
        "module": function.__module__,
        "function": function.__name__,
        "import_path": _import_path(),
        "limits": {"memory": memory, "seconds": seconds + START_SECONDS},
    }
    environment = {name: os.environ[name] for name in ENVIRONMENT if name in os.environ}
    with tempfile.TemporaryFile() as answer:
        try:
            status = subprocess.run(
                [sys.executable, "-I", "-B", "-W", "ignore", "-c", BOOT],
                input=json.dumps(job).encode(),
                stdout=answer,
                stderr=subprocess.DEVNULL,
                env=environment | SETTINGS,
                cwd="/",
                pass_fds=() if output is None else (output,),
                start_new_session=True,
                timeout=3 * (seconds + START_SECONDS),
                check=False,
            ).returncode
        except subprocess.TimeoutExpired:
            status = -signal.SIGXCPU
        answer.seek(0)
        raw = answer.read(MAX_ANSWER)
    if status == DONE:
        return json.loads(raw)
    raise VerificationError(f"{path}: {_reason(status, raw)}")


def limit_resources(memory: int, seconds: int) -> None:
    """Limit the memory, CPU time and processes of this process from now on."""
    limits = {"RLIMIT_CORE": 0, "RLIMIT_CPU": seconds, "RLIMIT_NPROC": 0}
    if sys.platform == "linux":
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        limits["RLIMIT_AS"] = pages * resource.getpagesize() + memory
    for name, value in limits.items():
        _limit(getattr(resource, name), value)


def forbid_files() -> None:
    """Let this process open no more files, sockets and libraries; those that are open stay so."""
    _limit(resource.RLIMIT_NOFILE, 0)


def _limit(kind: int, value: int) -> None:
    hard = resource.getrlimit(kind)[1]
    value = value if hard == resource.RLIM_INFINITY else min(value, hard)
    resource.setrlimit(kind, (value, value))


def serve(function: Callable[..., Any], job: Mapping[str, Any]) -> None:
    """Call a function in the child, print its result, and end."""
    try:
        status, answer = DONE, json.dumps(function(**job))
    except Exception as error:  # what a library raises over a file is not documented
        status, answer = REFUSED, json.dumps(str(error) or type(error).__name__)
    sys.stdout.write(answer)
    sys.stdout.flush()
    os._exit(status)  # a damaged library may crash while it is taken down


def _import_path() -> list[str]:
    """Return where the child finds our modules, however they are installed."""
    folders = [Path(__file__).parent.parent, Path(zoo.__file__).parent.parent]
    return [path for path in sys.path if os.path.isabs(path)] + [str(path) for path in folders]


def _reason(status: int, raw: bytes) -> str:
    if status == REFUSED:
        return " ".join(str(json.loads(raw)).split())[:300]
    if status in (-signal.SIGXCPU, -signal.SIGKILL):
        return "reading it takes too long"
    ended = signal.Signals(-status).name if status < 0 else f"status {status}"
    return f"the library that reads it failed with {ended}"
