"""Results of the tests behind docs/reliability.md, in files from which its table is written.

A test of a promise calls ``record`` with the numbers of cases and failures. Nothing is written
unless ``$ZOO_TEST_RESULTS`` names a directory::

    ZOO_TEST_RESULTS=tests/results python -m pytest -m '' tests/faults
    python -m tests.fuzz.table          # writes the table from tests/results

The files are committed. Each has the result of one test, so parallel runs do not conflict.
"""

import json
import os
import platform
import re
from pathlib import Path
from typing import Any

VARIABLE = "ZOO_TEST_RESULTS"
PROMISES = {
    "fuzz": "A damaged or hostile file is read to equal values, or refused in one line, "
    "within limits of time and memory",
    "pickle": "No code in a `.bin` file is executed",
    "bit-flip": "A flipped bit in a model, an export, a corpus or a checkpoint is found and named",
    "kill": "`kill -9` or SIGBUS at a random moment leaves no incomplete output that loads, "
    "and the same command succeeds when it is run again",
    "signal": "SIGHUP, SIGQUIT and SIGTERM end a command cleanly",
    "full-disk": "A full disk is reported in one line, and no files are left behind",
    "read-only": "A read-only disk is reported in one line, and no files are left behind",
    "odd-names": "A FIFO, a device, a folder or a name that is not UTF-8 is used or refused in one "
    "line, and no files are left behind",
    "no-home": "Without `$HOME` and with `LANG=C`, a command succeeds or says what it lacks",
    "processes": "2 to 8 processes that share a directory end with the result of a sequential run",
    "clock": "Changes of the system clock change no result",
    "changing-file": "A file that changes while it is read is never converted to other values",
    "small-memory": "In 1 GB of address space, a command succeeds "
    "or reports that memory is missing",
    "hub-load": "50 simultaneous conversions from a faulty Hub succeed, "
    "and each file is downloaded once",
    "offline": "`--offline` opens no socket",
    "token": "The Hub's token is written nowhere",
    "large-conversion": "A checkpoint of 12 GB is converted within 500 MB of memory",
    "large-corpus": "A corpus is built from 2 GB of text within 1 GB of memory",
    "many-inputs": "`zoo run` processes 50,000 inputs in constant memory",
    "many-samples": "`zoo eval` and `zoo finetune` evaluate 50,000 samples in constant memory; "
    "`zoo finetune` also holds their token ids",
    "save": "A process that is killed while it writes a checkpoint loses at most that one, and the "
    "resumed run writes the same bytes as an uninterrupted one",
    "resume": "A run that is resumed 200 times writes the same bytes as an uninterrupted one",
}


def record(
    promise: str, *, cases: int, failures: int = 0, measured: str = "", command: str = ""
) -> None:
    """Write the result of a test to the directory ``$ZOO_TEST_RESULTS``.

    Call it before the assertion; otherwise a failure is not recorded.

    Args:
        promise: key in ``PROMISES``.
        cases: number of cases.
        failures: number of cases that broke the promise.
        measured: measured figure as text, such as ``"peak 431 MB"``.
        command: command that repeats the test; by default, the running test.
    """
    if promise not in PROMISES:
        raise KeyError(f"{promise}: add this promise to tests/reporting.py")
    folder = os.environ.get(VARIABLE)
    if not folder:
        return
    result: dict[str, Any] = {
        "promise": promise,
        "command": command or f"pytest {_running_test()}",
        "cases": cases,
        "failures": failures,
        "measured": measured,
        "python": platform.python_version(),
    }
    path = Path(folder) / f"{promise}.{_slug(result['command'])}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(result, indent=2) + "\n", "utf-8")


def _running_test() -> str:
    return os.environ["PYTEST_CURRENT_TEST"].rpartition(" ")[0]


def _slug(command: str) -> str:
    """Return a file name made of the last words of a command."""
    return re.sub(r"[^a-z0-9]+", "-", command.lower()).strip("-")[-80:].lstrip("-")
