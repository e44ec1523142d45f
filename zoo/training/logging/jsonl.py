"""The log of a run: one JSON line a record.

``metrics.jsonl`` holds what follows from the settings alone, and no clock. A checkpoint notes how
long it was; a run that goes on from there cuts it back to that length, so that it ends byte for
byte as if nothing had happened. ``performance.jsonl`` holds what depends on the machine and the
clock. It is never cut back: time that was spent twice was spent.
"""

import json
import mmap
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from blake3 import blake3

from zoo.errors import VerificationError
from zoo.plugins.logger import Logger

METRICS_FILE, PERFORMANCE_FILE = "metrics.jsonl", "performance.jsonl"
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


class JsonlLogger(Logger):
    """The open log of a run, for the one process that writes it (see ``zoo.training.state.lock``).

    Args:
        run: the run's directory. A last line that was never finished, because the process was
            killed, is removed.

    Raises:
        OSError: a file cannot be opened or, later, written.
    """

    def __init__(self, run: Path, step: int = 0) -> None:
        super().__init__(run, step)
        self.path = run / METRICS_FILE
        self._log = _open(self.path)
        self._speed = _open(run / PERFORMANCE_FILE)
        self._hash = blake3(self.path.read_bytes())

    def log(self, record: Mapping[str, Any]) -> None:
        """Append a record to ``metrics.jsonl``; it has reached the system when this returns.

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
        line = _line({name: record[name] for name in FIELDS if name in record})
        _append(self._log, line)
        self._hash.update(line)

    def log_performance(self, record: Mapping[str, Any]) -> None:
        """Append a record to ``performance.jsonl``: see ``Throughput.record``."""
        _append(self._speed, _line(record))

    def size(self) -> int:
        """Return how many bytes ``metrics.jsonl`` has, once all of them are on the disk."""
        os.fsync(self._log)
        return os.fstat(self._log).st_size

    def digest(self) -> str:
        """Return the BLAKE3 digest of ``metrics.jsonl``."""
        return self._hash.hexdigest()

    def truncate(self, position: int) -> None:
        """Cut ``metrics.jsonl`` back to where it was when a checkpoint was written.

        Args:
            position: what ``position`` returned then.

        Raises:
            VerificationError: the log is shorter, or no line ends there.
        """
        with self.path.open("rb") as file:
            kept = file.read(position)
        if len(kept) < position or not (kept.endswith(b"\n") or position == 0):
            raise VerificationError(
                f"{self.path} is not the log that the checkpoint goes with: "
                f"no line ends at byte {position:,}",
                "restore it from a copy",
            )
        os.ftruncate(self._log, position)
        self._hash = blake3(kept)

    def close(self) -> None:
        """Close both files."""
        os.close(self._log)
        os.close(self._speed)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def read_jsonl(run: Path, name: str = METRICS_FILE) -> list[Record]:
    """Return the records of a log in order; none if there is no log yet.

    Args:
        run: the run's directory.
        name: ``metrics.jsonl`` or ``performance.jsonl``. An unfinished last line is ignored: it
            is being written, or was when the process was killed.

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


def _line(record: Mapping[str, Any]) -> bytes:
    return json.dumps(record, allow_nan=False).encode() + b"\n"


def _append(handle: int, line: bytes) -> None:
    rest = memoryview(line)
    while rest:  # a disk that fills up takes a part, and then raises an error
        rest = rest[os.write(handle, rest) :]


def _open(path: Path) -> int:
    """Open a log to append to, after its last whole line."""
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o666)
    if size := os.fstat(handle).st_size:
        with mmap.mmap(handle, size, access=mmap.ACCESS_READ) as content:
            whole = content.rfind(b"\n") + 1
        if whole < size:
            os.ftruncate(handle, whole)
    return handle
