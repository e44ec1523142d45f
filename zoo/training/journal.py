"""The log of a run: one JSON line a record.

``log.jsonl`` holds what follows from the settings alone, and no clock. A checkpoint notes how
long it was; a run that goes on from there cuts it back to that length, so that it ends byte for
byte as if nothing had happened. ``speed.jsonl`` holds what depends on the machine and the clock.
It is never cut back: time that was spent twice was spent.
"""

import fcntl
import json
import mmap
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from zoo.errors import UsageError, VerificationError

LOG, SPEED = "log.jsonl", "speed.jsonl"
FIELDS = (
    "step",
    "split",
    "loss",
    "losses",
    "metrics",
    "learning_rate",
    "gradient_norm",
    "tokens",
)
Record = dict[str, Any]


class Journal:
    """The open log of a run, for the one process that writes it.

    Args:
        run: the run's directory. A last line that was never finished, because the process was
            killed, is removed.

    Raises:
        UsageError: another process has the log open.
        OSError: a file cannot be opened or, later, written.
    """

    def __init__(self, run: Path) -> None:
        self.path = run / LOG
        self._log = _open(self.path)
        self._speed = _open(run / SPEED)

    def write(self, record: Mapping[str, Any]) -> None:
        """Append a record to ``log.jsonl``; it has reached the system when this returns.

        Args:
            record: ``step`` (updates made) and ``split`` (``train`` or ``validation``); ``loss``,
                the sum that is minimised; ``losses``, term -> mean; ``metrics``, name -> mean;
                and of the training split ``learning_rate``, ``gradient_norm`` and ``tokens``
                (seen so far). Keys are written in this order, those of ``losses`` and
                ``metrics`` in the order they are given, and numbers so that the same come back.

        Raises:
            ValueError: there is another key, or a number that is not finite.
        """
        if odd := record.keys() - set(FIELDS):
            raise ValueError(f"a record of the log has no {', '.join(sorted(odd))}")
        _append(self._log, {name: record[name] for name in FIELDS if name in record})

    def speed(self, record: Mapping[str, Any]) -> None:
        """Append a record to ``speed.jsonl``: see ``Throughput.record``."""
        _append(self._speed, record)

    def position(self) -> int:
        """Return how many bytes ``log.jsonl`` has, once all of them are on the disk."""
        os.fsync(self._log)
        return os.fstat(self._log).st_size

    def truncate(self, position: int) -> None:
        """Cut ``log.jsonl`` back to where it was when a checkpoint was written.

        Args:
            position: what ``position`` returned then.

        Raises:
            VerificationError: the log is shorter, or no line ends there.
        """
        with self.path.open("rb") as file:
            file.seek(max(0, position - 1))
            ends = file.read(1) == b"\n" or position == 0
        if not ends:
            raise VerificationError(
                f"{self.path} is not the log that the checkpoint goes with: "
                f"no line ends at byte {position:,}",
                "restore it from a copy",
            )
        os.ftruncate(self._log, position)

    def close(self) -> None:
        """Close both files."""
        os.close(self._log)
        os.close(self._speed)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def read(run: Path, name: str = LOG) -> list[Record]:
    """Return the records of a log in order; none if there is no log yet.

    Args:
        run: the run's directory.
        name: ``log.jsonl`` or ``speed.jsonl``. A last line without an end is left out: it is
            being written, or was when the process was killed.

    Raises:
        VerificationError: a line is not a record.
    """
    path = run / name
    if not path.is_file():
        return []
    lines = path.read_bytes().split(b"\n")
    return [_record(path, number, line) for number, line in enumerate(lines[:-1], 1)]


def _record(path: Path, number: int, line: bytes) -> Record:
    try:
        found = json.loads(line)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise VerificationError(
            f"{path}, line {number} is damaged: {line[:40].decode(errors='replace')!r}",
            "restore the file from a copy, or remove the line",
        )
    return found


def _append(handle: int, record: Mapping[str, Any]) -> None:
    line = memoryview(json.dumps(record, allow_nan=False).encode() + b"\n")
    while line:  # a disk that fills up takes a part, and then raises an error
        line = line[os.write(handle, line) :]


def _open(path: Path) -> int:
    """Open a log to append to, after its last whole line, and keep other processes from it.

    Raises:
        UsageError: another process has it open.
    """
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o666)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        os.close(handle)
        raise UsageError(
            f"another process is at work in {path.parent}", "let it end, or end it"
        ) from error
    except OSError:
        pass  # some network file systems have no such locks
    if size := os.fstat(handle).st_size:
        with mmap.mmap(handle, size, access=mmap.ACCESS_READ) as content:
            whole = content.rfind(b"\n") + 1
        if whole < size:
            os.ftruncate(handle, whole)
    return handle
