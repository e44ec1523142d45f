"""The output folder of a job: its record, which files are complete, and which remain."""

import logging
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from zoo.data.many_files.plan import FileJob, FilePlan, FileStamp, output_name
from zoo.data.many_files.shard import WHOLE_JOB, FileShard
from zoo.errors import UsageError, VerificationError, first_names
from zoo.io.digests.self_digest import NO_DIGEST, add_digest, parse_record
from zoo.io.json import JsonStruct, encode_json
from zoo.io.limits import MAX_CORPUS_MANIFEST_BYTES, MAX_CORPUS_MANIFEST_VALUES
from zoo.io.local import require_local
from zoo.io.locks import directory_lock
from zoo.io.output.atomic import atomic_write
from zoo.io.output.full_disks import writing
from zoo.io.output.inside import files_inside, read_inside
from zoo.io.output.overwrite import check_not_inside
from zoo.io.output.resumable import discard_output
from zoo.io.output.staging import is_staged, parent_directories, remove_stale_staging
from zoo.io.paths import safe_join
from zoo.io.progress import progress
from zoo.io.remote.publish import publish_file, refresh_names
from zoo.version import __version__

LOG = logging.getLogger("zoo")
RECORD = ".zoo-files.json"
_DIGEST = re.compile(r"[0-9a-f]{64}")
ANOTHER = "give another --output, or --force to replace them"


class JobRecord(JsonStruct, kw_only=True):
    """Contents of ``.zoo-files.json``: what a job is."""

    # BLAKE3 of this file; see ``zoo.io.digests.self_digest``. It comes before values of the user.
    digest: str
    zoo: int  # version of the format
    created_by: str
    verb: str  # the command
    settings: dict[str, Any]  # the model's digest, the task and its options
    suffix: str  # ending of the outputs
    columns: list[str]  # columns of the input tables
    inputs: dict[str, FileStamp]  # name of an input -> its stamp when it was read


@dataclass(frozen=True)
class JobResult:
    """What a process has done of a job.

    Attributes:
        total: number of files of the job.
        written: number of files that were written.
        skipped: number of files of the shard that were complete before.
        remaining: number of files of the job that have no output yet, of any shard.
        rows: number of rows that were written.
    """

    total: int
    written: int
    skipped: int
    remaining: int
    rows: int

    def to_dict(self) -> dict[str, int]:
        """Return the counts of files, for ``--json``."""
        return {
            "total": self.total,
            "written": self.written,
            "skipped": self.skipped,
            "remaining": self.remaining,
        }

    @property
    def summary(self) -> str:
        """The counts as a line."""
        parts = [f"{self.written:,} of {self.total:,} files, {self.rows:,} rows"]
        if self.skipped:
            verb = "was" if self.skipped == 1 else "were"
            parts.append(f"{self.skipped:,} {verb} complete before")
        if self.remaining:
            verb = "remains" if self.remaining == 1 else "remain"
            parts.append(f"{self.remaining:,} {verb} for other shards")
        return "; ".join(parts)


class JobFolder:
    """The folder that several processes write the outputs of one job into.

    Args:
        path: the folder.
        plan: inputs and outputs.
        verb: the command.
        shard: the part of the job that this process computes.
        resume: continue an interrupted shard: files that are complete stay.
        force: compute the shard again; the outputs of another job are removed.
    """

    # ``.zoo-files.json`` records the job. The first process writes it, under a lock of the folder,
    # and all others compare theirs with it. An output appears when it is complete, by a rename; its
    # part is locked while it is written. Processes therefore need no other communication, and the
    # number of shards may change when a job is resumed.

    def __init__(
        self,
        path: Path,
        plan: FilePlan,
        verb: str,
        *,
        shard: FileShard = WHOLE_JOB,
        resume: bool = False,
        force: bool = False,
    ) -> None:
        if resume and force:
            raise UsageError("--resume and --force exclude each other", "give one")
        self.path = path
        self.plan = plan
        self.shard = shard
        self.jobs = shard.select(plan.jobs)
        self._verb = verb
        self._resume = resume
        self._force = force
        self._stamps: dict[str, FileStamp] = {}
        self._check_folder()

    def _check_folder(self) -> None:
        """Check that the folder may be written, before anything is computed."""
        require_local(self.path, "output")
        check_not_inside(self.path / RECORD)
        if self.path.is_symlink():
            raise UsageError(f"{self.path} is a symbolic link", "give the folder itself")
        if self.path.exists() and not self.path.is_dir():
            raise UsageError(f"{self.path} is a file", "give a folder as --output")
        if self.path.is_dir():
            with writing(self.path / RECORD):
                remove_stale_staging(self.path)
                self._read_record()
        if not self.jobs:
            LOG.info(
                "shard %s has no file: the job has only %s", self.shard, f"{len(self.plan.jobs):,}"
            )
        for job in self.jobs:
            self._check_output(job)

    def _check_output(self, job: FileJob) -> None:
        """Check that an output may be written or skipped."""
        inner_parts = output_name(job.name, self.plan.suffix).split("/")[:-1]
        folder = self.path
        for part in inner_parts:
            folder /= part
            if folder.is_symlink():
                raise UsageError(f"{folder} is a symbolic link", "remove it")
        if not os.path.lexists(job.output):
            return
        if job.output.is_symlink() or not job.output.is_file():
            raise UsageError(f"{job.output} is not a regular file", "move it away")
        if not self._resume and not self._force:
            raise UsageError(
                f"{job.output} exists", "--resume continues the job, and --force begins again"
            )

    def claim(self, settings: Mapping[str, Any]) -> list[FileJob]:
        """Record the job, or compare it with the record; return the files that remain.

        Args:
            settings: what the outputs depend on, apart from the inputs.

        Raises:
            UsageError: the folder belongs to another job.
            VerificationError: an input was changed after its output was written.
        """
        with writing(self.path / RECORD):
            with parent_directories(self.path):
                self.path.mkdir(exist_ok=True)
            with directory_lock(self.path):
                record = self._read_record()
                expected_record = self._new_record(settings)
                difference = ""
                if record is not None:
                    difference = self._difference(record, expected_record)
                if difference and not self._force:
                    raise UsageError(
                        f"{self.path} holds the results of another job: {difference}", ANOTHER
                    )
                stamps = expected_record.inputs
                if record is not None and self._force:
                    self._discard(record, of_all_shards=bool(difference))
                if record is not None and not difference:
                    stamps = record.inputs
                remaining_jobs, self._stamps = self._remaining_jobs(stamps)
                expected_record = replace(expected_record, inputs=self._stamps)
                if record is None or replace(record, digest=NO_DIGEST) != expected_record:
                    content = add_digest(encode_json(expected_record))
                    atomic_write(self.path / RECORD, content)
        publish_file(self.path / RECORD)
        return remaining_jobs

    def run(
        self, settings: Mapping[str, Any], process: Callable[[FileJob, bool], int]
    ) -> JobResult:
        """Claim the folder, and write the outputs of the shard that remain.

        Args:
            settings: see ``claim``.
            process: writes the output of a file and returns the number of its rows; its second
                argument says whether to continue an output that was interrupted.
        """
        remaining_jobs = self.claim(settings)
        rows = 0
        with progress(f"running {self._verb}", len(remaining_jobs), unit="files") as advance:
            for job in remaining_jobs:
                self.begin_file(job)
                rows += process(job, self._resume)
                self.finish_file(job)
                advance(1)
        return self.result(written=len(remaining_jobs), rows=rows)

    def begin_file(self, job: FileJob) -> None:
        """Check that an input is still the one that the record of the job has.

        Raises:
            VerificationError: it has changed since.
        """
        self._stamps[job.name].require_same(job.source, "after the job began")

    def finish_file(self, job: FileJob) -> None:
        """Upload an output that is written, if the folder is a URL."""
        publish_file(job.output)

    def result(self, *, written: int, rows: int) -> JobResult:
        """Return what was done, and how much of the job remains."""
        refresh_names(self.path)
        missing = [job for job in self.plan.jobs if not job.output.exists()]
        skipped = len(self.jobs) - written
        return JobResult(len(self.plan.jobs), written, skipped, len(missing), rows)

    def _new_record(self, settings: Mapping[str, Any]) -> JobRecord:
        inputs = {job.name: FileStamp.read(job.source) for job in self.plan.jobs}
        return JobRecord(
            zoo=1,
            created_by=__version__,
            verb=self._verb,
            settings=msgspec.json.decode(msgspec.json.encode(settings, enc_hook=str)),
            suffix=self.plan.suffix,
            columns=list(self.plan.columns),
            inputs=inputs,
            digest=NO_DIGEST,
        )

    def _read_record(self) -> JobRecord | None:
        """Return the record; ``None`` for an empty folder."""
        try:
            content = read_inside(self.path, RECORD, "record", MAX_CORPUS_MANIFEST_BYTES)
        except FileNotFoundError:
            self._require_empty()
            return None
        return parse_record(
            content,
            self.path / RECORD,
            JobRecord,
            hint="give another --output",
            max_values=MAX_CORPUS_MANIFEST_VALUES,
        )

    def _require_empty(self) -> None:
        names = [name for name in files_inside(self.path) if not is_staged(name)]
        if names:
            raise UsageError(
                f"{self.path} holds {first_names(sorted(names), 3)}, and no record of a job",
                "give a new or an empty folder",
            )

    def _difference(self, record: JobRecord, expected_record: JobRecord) -> str:
        """Return what distinguishes a recorded job from this one, or an empty text."""
        if record.verb != self._verb:
            return f"they are of zoo {record.verb}"
        difference = _first_difference(record.settings, expected_record.settings)
        if difference:
            return difference
        if record.suffix != expected_record.suffix:
            return f"they end in {record.suffix}, and not in {expected_record.suffix}"
        added = sorted(expected_record.inputs.keys() - record.inputs.keys())
        if added:
            return f"its inputs lack {first_names(added, 3)}"
        missing = sorted(record.inputs.keys() - expected_record.inputs.keys())
        if missing:
            return f"its inputs also have {first_names(missing, 3)}"
        if record.columns != expected_record.columns:
            return f"its tables have the columns {', '.join(record.columns)}"
        return ""

    def _remaining_jobs(
        self, stamps: Mapping[str, FileStamp]
    ) -> tuple[list[FileJob], dict[str, FileStamp]]:
        """Return the jobs of the shard that have no output, and the stamps of all inputs."""
        remaining_jobs = []
        new_stamps = dict(stamps)
        for job in self.jobs:
            stamp = FileStamp.read(job.source)
            if not job.output.exists():
                # An input may be corrected as long as nothing was computed from it.
                new_stamps[job.name] = stamp
                remaining_jobs.append(job)
            elif stamps[job.name] != stamp:
                raise VerificationError(
                    f"{job.source} was changed after {job.output} was written",
                    "remove the output to compute it again, or restore the input",
                )
        return remaining_jobs, new_stamps

    def _discard(self, record: JobRecord, *, of_all_shards: bool) -> None:
        """Remove the outputs of the shard, or those of all shards."""
        outputs = [job.output for job in self.jobs]
        if of_all_shards:
            for name in record.inputs:
                recorded_name = output_name(name, record.suffix)
                outputs.append(safe_join(self.path, recorded_name, str(self.path / RECORD)))
        for output in dict.fromkeys(outputs):
            discard_output(output)


def _first_difference(before: Mapping[str, Any], now: Mapping[str, Any], prefix: str = "") -> str:
    """Return what differs between two records of settings, or an empty text."""
    for name in {**before, **now}:
        old_value = before.get(name)
        new_value = now.get(name)
        if old_value == new_value:
            continue
        if isinstance(old_value, Mapping) and isinstance(new_value, Mapping):
            return _first_difference(old_value, new_value, f"{prefix}{name}.")
        if any(_DIGEST.fullmatch(str(value)) for value in (old_value, new_value)):
            return f"they are of another {name}"
        return f"{prefix}{name} was {_shown(old_value)}, and is {_shown(new_value)}"
    return ""


def _shown(value: object) -> str:
    return "not given" if value is None else f"{value!r:.60}"
