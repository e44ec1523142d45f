"""Curves of a run as a table."""

import csv
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

from zoo.plugins.logger import ScalarLogger

COLUMNS = ("step", "name", "value")


class CsvLogger(ScalarLogger):
    """Writes ``metrics.csv`` in the run's directory: step, name and value in each row.

    Args:
        run: the run's directory.
        step: see ``Logger``; rows of later steps are removed.
    """

    name: ClassVar[str] = "csv"

    def __init__(self, run: Path, step: int) -> None:
        super().__init__(run, step)
        path = run / "metrics.csv"
        rows = _rows_until(path, step) if path.exists() else []
        self._file = open(path, "w", encoding="utf-8", newline="")  # noqa: SIM115 (see close)
        self._writer = csv.writer(self._file, lineterminator="\n")
        self._writer.writerows([COLUMNS, *rows])

    def log_scalars(self, scalars: Mapping[str, float], step: int) -> None:
        """Write values of one step."""
        self._writer.writerows((step, name, value) for name, value in scalars.items())
        self._file.flush()

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def _rows_until(path: Path, step: int) -> list[list[str]]:
    with open(path, encoding="utf-8", newline="") as file:
        _, *rows = csv.reader(file)
    return [row for row in rows if len(row) == len(COLUMNS) and int(row[0]) <= step]
