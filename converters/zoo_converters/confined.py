"""Calls of a function in a subprocess with limits on memory, time and files.

For C libraries that parse untrusted files: a crash, an endless loop or an allocation of terabytes
ends only the subprocess.
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import zoo
from zoo.errors import SourceError, VerificationError
from zoo.io.scratch import memory_file

try:
    import resource
except ImportError:  # Windows has no limits of processes
    resource = None  # type: ignore[assignment]

BOOT = """
import json, sys
request = json.load(sys.stdin)
sys.path += [path for path in request.pop("import_path") if path not in sys.path]
from importlib import import_module
from zoo_converters.confined import serve
serve(getattr(import_module(request.pop("module")), request.pop("function")), request)
"""
MAX_RESULT = 1 << 26  # bytes of JSON
START_SECONDS = 10  # for the import of libraries from a cold disk
DONE = 0
REFUSED = 3
# variables for the dynamic loader, no secrets; HDF5 must not load plugins that a file names
ENVIRONMENT = ("PATH", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "HOME", "TMPDIR", "LANG", "LC_ALL")
SETTINGS = {"HDF5_PLUGIN_PRELOAD": "::", "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}


def call_confined(
    function: Callable[..., Any],
    path: Path,
    arguments: Mapping[str, Any],
    *,
    memory: int,  # bytes, beyond those in use after imports
    seconds: int,  # of CPU time; the limit of the elapsed time is higher
    output: int | None = None,  # descriptor of a file for output of the function
) -> Any:
    """Call a module-level function in a subprocess, and return its result, a JSON value."""
    if resource is None:
        raise SourceError(
            f"{path} is not read on this system, which cannot limit a process",
            "convert it on Linux or macOS",
        )
    # The function calls ``limit_resources`` after its imports, and ``forbid_files`` after it opened
    # the file
    folders = [str(Path(module).parent.parent) for module in (__file__, zoo.__file__)]
    request = {
        **arguments,
        "module": function.__module__,
        "function": function.__name__,
        "import_path": [path for path in sys.path if os.path.isabs(path)] + folders,
        "limits": {"memory": memory, "seconds": seconds + START_SECONDS},
    }
    environment = {name: os.environ[name] for name in ENVIRONMENT if name in os.environ}
    with memory_file() as answer:
        try:
            status = subprocess.run(
                [sys.executable, "-I", "-W", "ignore", "-c", BOOT],
                input=json.dumps(request).encode(),
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
        raw = answer.read(MAX_RESULT)
    if status == DONE:
        return json.loads(raw)
    raise VerificationError(f"{path}: {_reason(status, raw)}")


def limit_resources(memory: int, seconds: int) -> None:
    """Limit memory, CPU time and number of processes of this process."""
    limits = {"RLIMIT_CORE": 0, "RLIMIT_CPU": seconds, "RLIMIT_NPROC": 0}
    if sys.platform == "linux":
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        limits["RLIMIT_AS"] = pages * resource.getpagesize() + memory
    for name, value in limits.items():
        _limit(getattr(resource, name), value)


def forbid_files() -> None:
    """Prevent this process from opening files, sockets and libraries."""
    _limit(resource.RLIMIT_NOFILE, 0)


def _limit(resource_number: int, value: int) -> None:
    hard = resource.getrlimit(resource_number)[1]
    value = value if hard == resource.RLIM_INFINITY else min(value, hard)
    resource.setrlimit(resource_number, (value, value))


def serve(function: Callable[..., Any], arguments: Mapping[str, Any]) -> None:
    """Call a function in the subprocess, print its result, and exit."""
    try:
        status = DONE
        answer = json.dumps(function(**arguments))
    except Exception as error:  # the exceptions of libraries are not documented
        status = REFUSED
        answer = json.dumps(str(error) or type(error).__name__)
    sys.stdout.write(answer)
    sys.stdout.flush()
    os._exit(status)  # a library with corrupted memory may crash at exit


def _reason(status: int, raw: bytes) -> str:
    if status == REFUSED:
        return " ".join(str(json.loads(raw)).split())[:300]
    if status in (-signal.SIGXCPU, -signal.SIGKILL):
        return "reading it takes too long"
    ended = signal.Signals(-status).name if status < 0 else f"status {status}"
    return f"the library that reads it failed with {ended}"
