"""Curves for TensorBoard: files of events, written without TensorBoard or TensorFlow.

A file is a row of records, each its length and its bytes with a checksum behind either
(``tensorflow/core/lib/io/record_writer.h``). A record is a message ``Event`` (``event.proto``):
``wall_time`` 1, ``step`` 2, ``file_version`` 3, ``summary`` 5, ``session_log`` 7. A summary
(``summary.proto``) repeats a ``value`` 1 of a ``tag`` 1 and a ``simple_value`` 2.

A run that goes on begins a new file with a mark at its first step. Readers drop what earlier files
say of that step and later ones, so that nothing has to be read or written again.
"""

import struct
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Self

from zoo.io.crc32c import crc32c, masked
from zoo.io.protobuf import field, field_of_single

PREFIX, SUFFIX = "events.out.tfevents.", ".zoo"
START = field(1, 1)  # SessionLog: status START
RATES = ("learning_rate", "gradient_norm")


class TensorBoardWriter:
    """The open file of events of a run, for the one process that writes it.

    Args:
        run: the run's directory.
        step: how many updates a run that goes on has made; later steps are forgotten.

    Raises:
        OSError: the file cannot be opened or, later, written.
    """

    def __init__(self, run: Path, step: int = 0) -> None:
        self._file = (run / _name(run)).open("xb")
        self._write(field(1, time.time()) + field(3, "brain.Event:2"))
        self._write(_head(step + 1) + field(7, START))

    def write(self, record: Mapping[str, Any]) -> None:
        """Write a record of ``metrics.jsonl`` or of ``performance.jsonl`` as curves.

        Args:
            record: see ``JsonlLogger.write`` and ``Throughput.record``.
        """
        values = dict(_scalars(record))
        if values:
            summary = b"".join(
                field(1, field(1, tag) + field_of_single(2, value)) for tag, value in values.items()
            )
            self._write(_head(record["step"]) + field(5, summary))

    def _write(self, event: bytes) -> None:
        length = struct.pack("<Q", len(event))
        self._file.write(length + _checksum(length) + event + _checksum(event))
        self._file.flush()  # for those who watch

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def _name(run: Path) -> str:
    """Return a file name that comes after those that are there, as readers sort by name."""
    stamps = [path.name.split(".")[3] for path in run.glob(f"{PREFIX}*")]
    last = max((int(stamp) for stamp in stamps if stamp.isdecimal()), default=0)
    return f"{PREFIX}{max(int(time.time()), last + 1):010d}{SUFFIX}"


def _head(step: int) -> bytes:
    return field(1, time.time()) + field(2, step)


def _checksum(content: bytes) -> bytes:
    return struct.pack("<I", masked(crc32c(content)))


def _scalars(record: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    """Yield tag and value of each curve that a record has a point of."""
    if "split" not in record:
        for name, value in record.items():
            if name not in ("step", "seconds"):
                yield f"speed/{name}", value
        return
    split = record["split"]
    for name in ("loss", *RATES):
        if name in record:
            yield f"{split}/{name}", record[name]
    for group, inner in (("losses", "loss/"), ("metrics", "")):
        for name, value in record.get(group, {}).items():
            yield f"{split}/{inner}{name}", value
