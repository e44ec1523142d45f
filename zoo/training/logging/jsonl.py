"""The JSON Lines logs of a run: one JSON object per line."""

import json
import mmap
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Self

from blake3 import blake3

from zoo.errors import VerificationError
from zoo.io.output.inside import open_inside
from zoo.overrides import override
from zoo.plugins.logger import Logger

METRICS_FILE = "metrics.jsonl"
PERFORMANCE_FILE = "performance.jsonl"
FIELDS = (
    "step",
    "split",
    "loss",
    "losses",
    "metrics",
    "learning_rate",
    "gradient_norm",
    "tokens",
    "skipped",
    "sources",
)
Record = dict[str, Any]


class JsonlLogger(Logger):
    """Writes the logs of a run; only the process that holds the run's lock may do so."""

    # ``metrics.jsonl`` only depends on the settings and holds no times. A checkpoint records its
    # length, and a resumed run truncates it to that length, so that it ends byte for byte like an
    # uninterrupted run. If rows of tables were skipped, the first record has their numbers.
    # ``performance.jsonl`` depends on the machine and is never truncated: steps that were repeated
    # took their time twice.

    name: ClassVar[str] = "jsonl"

    def __init__(self, run: Path, step: int = 0) -> None:
        super().__init__(run, step)
        self.path = run / METRICS_FILE
        self._log = _open(self.path)
        self._speed = _open(run / PERFORMANCE_FILE)
        self._hash = blake3(self.path.read_bytes())

    @override
    def log(self, record: Mapping[str, Any]) -> None:
        """Append a record to ``metrics.jsonl``; the system has it when this returns."""
        unknown_fields = record.keys() - set(FIELDS)
        if unknown_fields:
            raise ValueError(f"a record of the log has no {', '.join(sorted(unknown_fields))}")
        line = _line({name: record[name] for name in FIELDS if name in record})
        _append(self._log, line)
        self._hash.update(line)

    @override
    def log_performance(self, record: Mapping[str, Any]) -> None:
        _append(self._speed, _line(record))

    def size(self) -> int:
        """Return the length of ``metrics.jsonl`` in bytes."""
        return os.fstat(self._log).st_size

    def flush(self) -> None:
        """Flush ``metrics.jsonl`` to the disk; a thread may call it."""
        os.fsync(self._log)

    def digest(self) -> str:
        """Return the BLAKE3 digest of ``metrics.jsonl``."""
        return self._hash.hexdigest()

    def truncate(self, position: int) -> None:
        """Truncate ``metrics.jsonl`` to its length at a checkpoint."""
        with self.path.open("rb") as file:
            content = file.read(position)
        if len(content) < position or not (content.endswith(b"\n") or position == 0):
            raise VerificationError(
                f"{self.path} is not the log that the checkpoint goes with: "
                f"no line ends at byte {position:,}",
                "restore it from a copy",
            )
        os.ftruncate(self._log, position)
        self._hash = blake3(content)

    @override
    def close(self) -> None:
        os.close(self._log)
        os.close(self._speed)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def read_jsonl(run: Path, name: str = METRICS_FILE) -> list[Record]:
    """Return the records of a log in order; an empty list if the file does not exist."""
    # An unfinished last line is ignored: it is being written, or was when the process was killed.
    path = run / name
    if not path.is_file():
        return []
    lines = path.read_bytes().split(b"\n")
    records: list[Record] = []
    for number, line in enumerate(lines[:-1], 1):
        try:
            record = json.loads(line)
        except ValueError:
            record = None
        if not isinstance(record, dict):
            raise VerificationError(
                f"{path}, line {number} is damaged: {line[:40].decode(errors='replace')!r}",
                "restore the file from a copy, or remove the line",
            )
        records.append(record)
    return records


def _line(record: Mapping[str, Any]) -> bytes:
    return json.dumps(record, allow_nan=False).encode() + b"\n"


def _append(handle: int, line: bytes) -> None:
    remaining = memoryview(line)
    while remaining:  # A full disk accepts a part, then raises an error.
        written = os.write(handle, remaining)
        remaining = remaining[written:]


def _open(path: Path) -> int:
    """Open a log to append to, after its last complete line."""
    handle = open_inside(path.parent, path.name, os.O_RDWR | os.O_CREAT | os.O_APPEND)
    size = os.fstat(handle).st_size
    if size:  # An empty file cannot be mapped.
        with mmap.mmap(handle, size, access=mmap.ACCESS_READ) as content:
            end_of_lines = content.rfind(b"\n") + 1
        if end_of_lines < size:
            os.ftruncate(handle, end_of_lines)
    return handle
