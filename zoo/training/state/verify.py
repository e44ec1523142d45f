"""Checks of a run's directory and of its checkpoints, and comparison of two directories."""

import struct
from functools import partial
from pathlib import Path

from zoo.errors import VerificationError
from zoo.io.crc32c import crc32c, masked
from zoo.io.digests.checks import Check, run_check
from zoo.io.digests.files import check_files, hash_folder
from zoo.io.files import open_regular
from zoo.training.config.overrides import read_config_file
from zoo.training.config.run_config import config_type
from zoo.training.config.schema import validate_config
from zoo.training.logging.jsonl import METRICS_FILE, PERFORMANCE_FILE, read_jsonl
from zoo.training.logging.report import REPORT
from zoo.training.logging.tensorboard import PREFIX
from zoo.training.logging.tensorboard import PREFIX as EVENTS_PREFIX
from zoo.training.state import recovery
from zoo.training.state.checkpoints import STATE
from zoo.training.state.final_model import require_final
from zoo.training.state.progress import CHECKPOINTS, list_checkpoints
from zoo.training.state.run_manifest import MANIFEST, SETTINGS, read_manifest

REMEDY = "restore it from a copy"
EVENT_HEADER_BYTES = 12  # The length of an event, and its checksum.


def is_run(path: Path) -> bool:
    """Return whether a directory holds a run."""
    return (path / MANIFEST).is_file() and (path / SETTINGS).is_file()


def is_run_checkpoint(path: Path) -> bool:
    """Return whether a directory is a checkpoint in the directory of a run."""
    return path.parent.name == CHECKPOINTS and is_run(path.parent.parent)


def verify_run(path: Path) -> list[Check]:
    """Check a run: configuration, logs, every checkpoint, and the final models."""
    # Every byte of ``config.yaml``, ``run.json``, the checkpoints and the final models is covered
    # by a digest. ``metrics.jsonl`` grows: each checkpoint has the digest of the log up to its
    # step, and later records are checked only for their syntax. ``performance.jsonl`` and the
    # TensorBoard event files hold measurements that nothing is computed from, and are checked only
    # for their syntax. ``report.html`` is generated from the logs and is not checked.
    checks = [
        run_check("settings", partial(_check_settings, path)),
        run_check("log", partial(_check_lines, path, METRICS_FILE)),
        run_check("speed", partial(_check_lines, path, PERFORMANCE_FILE)),
        run_check("events", partial(_check_events, path)),
    ]
    has_intact_settings = checks[0].outcome == "ok"
    for checkpoint in list_checkpoints(path).values():
        if has_intact_settings:
            checks.extend(verify_run_checkpoint(checkpoint))
        else:
            checks.append(Check(checkpoint.name, "not run", "see settings"))
    for manifest in sorted(path.glob("*/zoo.json")):
        checks.append(run_check(manifest.parent.name, partial(_check_model, manifest.parent)))
    return checks


def verify_run_checkpoint(path: Path) -> list[Check]:
    """Check a checkpoint of a run: its record, its files, and the run's log up to its step."""
    return [run_check(path.name, partial(_check_checkpoint, path))]


def _check_settings(run: Path) -> str:
    record = read_manifest(run)
    check_files(run, record.files, MANIFEST, hint=REMEDY)
    if not record.digest:
        return "no digests: an earlier version began the run"
    return f"{len(record.files) + 1} files are as they were written"


def _check_checkpoint(path: Path) -> str:
    run = path.parent.parent
    if not (path / STATE).is_file():
        raise VerificationError(f"{path / STATE} is missing", "remove this checkpoint's directory")
    file = run / SETTINGS
    values = read_config_file(file)
    struct_type = config_type(read_manifest(run).kind, values)
    config = validate_config(values, struct_type, str(file))
    return recovery.check(run, path, config)


def _check_lines(run: Path, name: str) -> str:
    return f"{len(read_jsonl(run, name)):,} records"


def _check_events(run: Path) -> str:
    files = sorted(run.glob(f"{PREFIX}*"))
    count = sum(_count_events(file) for file in files)
    return f"{count:,} events in {len(files)} files"


def _count_events(path: Path) -> int:
    """Verify the checksums of a file's events, and count them; a truncated end is valid."""
    count = 0
    with open_regular(path) as file:
        size = path.stat().st_size
        header = file.read(EVENT_HEADER_BYTES)
        while len(header) == EVENT_HEADER_BYTES:
            length, header_checksum = struct.unpack("<QI", header)
            if masked(crc32c(header[:8])) != header_checksum:
                raise VerificationError(f"{path}: event {count + 1} is damaged", REMEDY)
            if file.tell() + length + 4 > size:
                break
            event = file.read(length)
            (checksum,) = struct.unpack("<I", file.read(4))
            if masked(crc32c(event)) != checksum:
                raise VerificationError(f"{path}: event {count + 1} is damaged", REMEDY)
            count += 1
            header = file.read(EVENT_HEADER_BYTES)
    return count


def _check_model(path: Path) -> str:
    from zoo.checkpoint.digests import check_digests

    detail = check_digests(path)
    require_final(path)
    return detail


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
