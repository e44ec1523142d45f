"""Comparison of two directories of a run, such as one that was resumed and one that was not."""

from pathlib import Path

from zoo.io.digests.files import hash_folder
from zoo.training.logging.jsonl import PERFORMANCE_FILE
from zoo.training.logging.report import REPORT
from zoo.training.logging.tensorboard import PREFIX as EVENTS_PREFIX

# Files that hold measured times and memory.
MEASURED_FILES = (PERFORMANCE_FILE, REPORT)


def differing_files(run: Path, other: Path) -> list[str]:
    """Return the names of files that differ in a byte, or that only one of two directories has.

    Files that hold times are not compared: ``performance.jsonl``, the report that draws it, and the
    events for TensorBoard, of which each process writes a file.
    """
    digests = hash_folder(run)
    other_digests = hash_folder(other)
    names = list[str]()
    for name in sorted({*digests, *other_digests}):
        is_equal = digests.get(name) == other_digests.get(name)
        if not is_equal and not _holds_times(Path(name)):
            names.append(name)
    return names


def _holds_times(file: Path) -> bool:
    return file.name in MEASURED_FILES or file.name.startswith(EVENTS_PREFIX)
