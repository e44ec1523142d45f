"""The files of a job: which file each input becomes, in a fixed order."""

import glob
import logging
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from zoo.data.readers.documents import expand_paths
from zoo.data.readers.parquet import PARQUET
from zoo.data.readers.tables import column_names, suffix_of
from zoo.data.readers.text_io import COMPRESSED
from zoo.errors import SourceError, UsageError, VerificationError, first_names
from zoo.io.local import require_local
from zoo.io.paths import check_unicode

LOG = logging.getLogger("zoo")
JSON_LINES = ".jsonl"
JSON_ENDINGS = (JSON_LINES, ".ndjson", ".json")
TABLES = (".csv", ".tsv", PARQUET)
ENDINGS = (*JSON_ENDINGS, *TABLES, ".txt")  # endings that an output's ending replaces
# Endings of files that a program is writing, or was when it ended.
PARTIAL = (".part", ".part.json", ".partial", ".tmp", ".temp", ".incomplete", ".crdownload")
HIDDEN = (".", "_")  # beginnings of names that Hadoop, Spark and Arrow leave out as well


class FileStamp(NamedTuple):
    """What changes when a file does: its size and the time of its last modification."""

    bytes: int
    modified_ns: int

    @classmethod
    def read(cls, path: Path) -> "FileStamp":
        """Return the stamp of a file now."""
        try:
            status = path.stat()
        except OSError as error:
            raise SourceError(f"{path} cannot be read: {error.strerror}") from error
        return cls(status.st_size, status.st_mtime_ns)

    def require_same(self, path: Path, since: str = "while it was read") -> None:
        """Check that a file has not changed.

        Args:
            path: the file.
            since: when it was not to change, for the message.

        Raises:
            VerificationError: the file has another stamp.
        """
        if FileStamp.read(path) != self:
            raise VerificationError(
                f"{path} changed {since}", "run the command again once it is complete"
            )


@dataclass(frozen=True)
class FileJob:
    """An input file, and the file that it becomes.

    Attributes:
        name: path of the input relative to its folder, with slashes: the same on every machine.
        source: the input.
        output: the file to write.
    """

    name: str
    source: Path
    output: Path


@dataclass(frozen=True)
class FilePlan:
    """The files of a job, sorted by name.

    Attributes:
        jobs: inputs and outputs.
        suffix: ending of the outputs, with its dot.
        columns: names of the columns that all tables have; empty for other files.
    """

    jobs: Sequence[FileJob]
    suffix: str
    columns: Sequence[str] = ()

    def require_columns(self, jobs: Sequence[FileJob]) -> None:
        """Check that the tables of a shard have the columns of the job's first one.

        Raises:
            UsageError: a table has other columns; the message names both files.
        """
        if not self.columns:
            return
        first_source = self.jobs[0].source
        for job in jobs:
            names = column_names(job.source)
            added = sorted(set(names) - set(self.columns))
            missing = sorted(set(self.columns) - set(names))
            if added or missing:
                difference = f"has the column {added[0]!r}" if added else "lacks the column"
                if not added:
                    difference += f" {missing[0]!r}"
                raise UsageError(
                    f"{job.source} {difference}, unlike {first_source}",
                    "run files of other columns as a job of their own",
                )


def is_many(inputs: Sequence[str]) -> bool:
    """Return whether inputs are several files: a folder, a pattern, or more than one."""
    if len(inputs) != 1:
        return len(inputs) > 1
    path = Path(inputs[0]).expanduser()
    try:
        return path.is_dir() or (glob.has_magic(inputs[0]) and not path.exists())
    except (OSError, ValueError):  # A NUL, or a name that is too long.
        return False


def plan_files(
    inputs: Sequence[str],
    folder: Path,
    suffix: str | None = None,
    *,
    has_tables: bool = True,
) -> FilePlan:
    """Return the files of a job.

    An output has the path of its input below the input's folder, with another ending. Files of a
    folder whose names begin with a dot or an underscore are left out.

    Args:
        inputs: files, folders and patterns.
        folder: folder of the outputs.
        suffix: ending of the outputs; by default the one of tables, and ``.jsonl`` for other files.
        has_tables: whether the files must have one format, and tables the same columns.

    Raises:
        SourceError: there are no files.
        UsageError: files cannot be one job, or would have the same output.
    """
    require_local(folder, "output")
    sources: dict[str, Path] = {}
    resolved_paths = set[Path]()
    for text in inputs:
        for name, path in _named_files(text, folder):
            resolved_path = path.resolve()
            if resolved_path in resolved_paths:
                continue
            resolved_paths.add(resolved_path)
            _require_usable(path, resolved_path, folder)
            if name in sources:
                raise _same_output(sources[name], path, folder / name)
            sources[name] = path
    ordered_names = sorted(sources)
    file_format = ""
    if has_tables:
        file_format = _common_format([sources[name] for name in ordered_names])
    if suffix is None:
        suffix = file_format if file_format in TABLES else JSON_LINES
    jobs: dict[Path, FileJob] = {}
    for name in ordered_names:
        job = FileJob(name, sources[name], folder / output_name(name, suffix))
        if job.output in jobs:
            raise _same_output(jobs[job.output].source, job.source, job.output)
        jobs[job.output] = job
    columns: Sequence[str] = ()
    if file_format in TABLES:
        columns = column_names(sources[ordered_names[0]])
    return FilePlan(tuple(jobs.values()), suffix, columns)


def output_name(name: str, suffix: str) -> str:
    """Return the name of an output: the input's with another ending."""
    stem = name
    for ending in COMPRESSED:
        if stem.lower().endswith(ending):
            stem = stem[: -len(ending)]
    for ending in ENDINGS:
        if stem.lower().endswith(ending):
            return stem[: -len(ending)] + suffix
    return name + suffix


def _named_files(text: str, folder: Path) -> Iterator[tuple[str, Path]]:
    """Yield the files that an input names, and their names relative to its folder."""
    require_local(text, "file")
    path = Path(text).expanduser()
    is_folder = path.is_dir()
    if is_folder and Path(os.path.abspath(folder)).resolve().is_relative_to(path.resolve()):
        raise UsageError(
            f"the output {folder} is inside the input {path}, whose files are all read",
            f"give a folder next to it, or name the files, such as with --input '{path / '*.csv'}'",
        )
    base = path if is_folder else _fixed_part(path)
    hidden_names = []
    has_files = False
    for file in expand_paths([text]):
        name = Path(os.path.relpath(file, base)).as_posix()
        if is_folder and any(part.startswith(HIDDEN) for part in name.split("/")):
            hidden_names.append(name)
            continue
        has_files = True
        yield name, file
    if hidden_names:
        noun = "file" if len(hidden_names) == 1 else "files"
        note = f"{len(hidden_names):,} hidden {noun}: {first_names(hidden_names, 3)}"
        if not has_files:
            raise SourceError(f"there are no files in {text} but {note}", "name them to read them")
        LOG.info("%s: left out %s", text, note)


def _fixed_part(path: Path) -> Path:
    """Return the folder of a file, or the part of a pattern before its first wildcard."""
    if path.exists():
        return path.parent
    fixed_part = Path(path.anchor)
    for part in path.parts[len(fixed_part.parts) :]:
        if glob.has_magic(part):
            break
        fixed_part /= part
    return fixed_part


def _require_usable(path: Path, resolved_path: Path, folder: Path) -> None:
    """Check that a file is complete, has a name that can be recorded, and is not an output."""
    check_unicode(path, "the input")
    if path.name.lower().endswith(PARTIAL):
        raise UsageError(
            f"{path} is a partial file, by its ending",
            "wait until it is complete, or leave it out, such as with "
            f"--input '{path.parent / '*.parquet'}'",
        )
    if resolved_path.is_relative_to(folder.resolve()):
        raise UsageError(
            f"the input {path} is inside the output {folder}", "give another folder as --output"
        )


def _common_format(paths: Sequence[Path]) -> str:
    """Return the format that all files have: an ending of tables, of JSON lines, or of text."""
    first_format = _format_of(paths[0])
    for path in paths:
        if _format_of(path) != first_format:
            raise UsageError(
                f"{paths[0]} and {path} have different formats",
                f"name the files of one, such as with --input '{paths[0].parent / '*'}"
                f"{paths[0].suffix}'",
            )
    return first_format


def _format_of(path: Path) -> str:
    suffix = suffix_of(path)
    if suffix in JSON_ENDINGS:
        return JSON_LINES
    return suffix if suffix in TABLES else ".txt"


def _same_output(first: Path, second: Path, output: Path) -> UsageError:
    return UsageError(
        f"{first} and {second} would both be written to {output}",
        "rename one of them, or run them as two jobs",
    )
