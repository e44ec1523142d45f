"""The folder of a job: which files remain, and folders of other jobs."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.data.many_files.test_plan import write
from zoo.data.many_files.folder import RECORD, JobFolder
from zoo.data.many_files.plan import FileJob, plan_files
from zoo.data.many_files.shard import parse_shard
from zoo.errors import UsageError, VerificationError
from zoo.io.output.resumable import resumable_output

SETTINGS = {"model": "0" * 64, "task": "embed", "options": {"dim": 8, "labels": ("a", "b")}}


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return write(tmp_path / "in", *(f"{k}.csv" for k in range(5)), "inner/5.csv")


def folder(source: Path, shard: str | None = None, **options: Any) -> JobFolder:
    out = source.parent / "out"
    plan = plan_files([str(source)], out, options.pop("suffix", None))
    return JobFolder(out, plan, options.pop("verb", "run"), shard=parse_shard(shard), **options)


def copy(job: FileJob, resume: bool) -> int:
    """Write the output of a file: its lines."""
    job.output.parent.mkdir(parents=True, exist_ok=True)
    job.output.write_text(job.source.read_text())
    return len(job.source.read_text().splitlines())


def names(source: Path) -> list[str]:
    """Return the outputs of the job."""
    out = source.parent / "out"
    return sorted(p.relative_to(out).as_posix() for p in out.rglob("*.*") if p.name != RECORD)


def test_shards_write_every_file_once(source: Path) -> None:
    written = []

    def process(job: FileJob, resume: bool) -> int:
        written.append(job.name)
        return copy(job, resume)

    results = [folder(source, f"{k}/4").run(SETTINGS, process) for k in (3, 1, 4, 2)]
    assert sorted(written) == sorted(set(written)) == names(source)
    assert len(written) == 6
    assert [result.remaining for result in results] == [5, 3, 2, 0]
    assert [result.written for result in results] == [1, 2, 1, 2]
    assert sum(result.rows for result in results) == 12
    assert results[0].summary == "1 of 6 files, 2 rows; 5 remain for other shards"


def test_a_resumed_job_computes_what_is_missing(source: Path) -> None:
    folder(source).run(SETTINGS, copy)
    (source.parent / "out" / "3.csv").unlink()
    with pytest.raises(UsageError, match=r"0\.csv exists; --resume continues the job"):
        folder(source)
    # The number of shards may change.
    assert folder(source, "2/2", resume=True).run(SETTINGS, copy).written == 1
    result = folder(source, resume=True).run(SETTINGS, copy)
    assert (result.written, result.skipped, result.remaining) == (0, 6, 0)
    assert result.summary == "0 of 6 files, 0 rows; 6 were complete before"


def test_more_shards_than_files_have_nothing_to_do(source: Path) -> None:
    result = folder(source, "7/7").run(SETTINGS, copy)
    assert (result.written, result.remaining) == (0, 6)


def another_model(source: Path) -> tuple[JobFolder, dict[str, Any]]:
    return folder(source, resume=True), {**SETTINGS, "model": "1" * 64}


def another_option(source: Path) -> tuple[JobFolder, dict[str, Any]]:
    return folder(source, resume=True), {**SETTINGS, "options": {"dim": 9}}


def another_verb(source: Path) -> tuple[JobFolder, dict[str, Any]]:
    return folder(source, resume=True, verb="eval"), SETTINGS


def another_suffix(source: Path) -> tuple[JobFolder, dict[str, Any]]:
    return folder(source, suffix=".jsonl"), SETTINGS


def more_inputs(source: Path) -> tuple[JobFolder, dict[str, Any]]:
    write(source, "6.csv")
    return folder(source, resume=True), SETTINGS


def fewer_inputs(source: Path) -> tuple[JobFolder, dict[str, Any]]:
    (source / "0.csv").unlink()
    return folder(source, resume=True), SETTINGS


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (another_model, "they are of another model"),
        (another_option, "options.dim was 8, and is 9"),
        (another_verb, "they are of zoo run"),
        (another_suffix, "they end in .csv, and not in .jsonl"),
        (more_inputs, "its inputs lack 6.csv"),
        (fewer_inputs, "its inputs also have 0.csv"),
    ],
)
def test_the_folder_of_another_job_is_refused(
    source: Path, change: Callable[[Path], tuple[JobFolder, dict[str, Any]]], message: str
) -> None:
    folder(source).run(SETTINGS, copy)
    before = names(source)
    other_folder, settings = change(source)
    with pytest.raises(UsageError) as error:
        other_folder.run(settings, copy)
    assert f"holds the results of another job: {message}" in str(error.value)
    assert names(source) == before


def test_force_replaces_another_job_and_keeps_other_files(source: Path) -> None:
    folder(source).run(SETTINGS, copy)
    notes = source.parent / "out" / "notes.md"
    notes.write_text("mine")
    first = folder(source, "1/2", suffix=".jsonl", force=True)
    first.run({**SETTINGS, "model": "1" * 64}, copy)
    assert names(source) == ["0.jsonl", "2.jsonl", "4.jsonl", "notes.md"]
    # The second shard finds its own job, and leaves the outputs of the first.
    second = folder(source, "2/2", suffix=".jsonl", force=True)
    assert second.run({**SETTINGS, "model": "1" * 64}, copy).remaining == 0
    assert len(names(source)) == 7
    with pytest.raises(UsageError, match="--resume and --force exclude each other"):
        folder(source, force=True, resume=True)


def test_a_file_that_another_process_writes_is_not_replaced(source: Path) -> None:
    folder(source, "2/2").run(SETTINGS, copy)
    output = source.parent / "out" / "0.csv"
    with resumable_output(output, {}) as rows:
        rows.write({"a": 1})
        with pytest.raises(UsageError, match=r"0\.csv\.part is being written by another process"):
            folder(source, force=True).run({**SETTINGS, "task": "classify"}, copy)


@pytest.mark.parametrize("force", [False, True])
def test_a_folder_of_other_files_is_refused(source: Path, force: bool) -> None:
    write(source.parent / "out", "thesis.tex")
    with pytest.raises(UsageError, match=r"out holds thesis\.tex, and no record of a job"):
        folder(source, force=force)


def test_outputs_that_are_no_folder_are_refused(source: Path) -> None:
    out = source.parent / "out"
    out.write_text("")
    with pytest.raises(UsageError, match="out is a file"):
        folder(source)
    out.unlink()
    (source.parent / "real").mkdir()
    out.symlink_to(source.parent / "real")
    with pytest.raises(UsageError, match="out is a symbolic link"):
        folder(source)
    out.unlink()
    folder(source).run(SETTINGS, copy)
    (out / "0.csv").unlink()
    (out / "0.csv").symlink_to(source / "1.csv")
    with pytest.raises(UsageError, match=r"0\.csv is not a regular file"):
        folder(source, resume=True)
    (out / "0.csv").unlink()
    (out / "inner" / "5.csv").unlink()
    (out / "inner").rmdir()
    (out / "inner").symlink_to(source)
    with pytest.raises(UsageError, match="inner is a symbolic link"):
        folder(source, resume=True)


def test_a_damaged_record_is_refused(source: Path) -> None:
    folder(source).run(SETTINGS, copy)
    path = source.parent / "out" / RECORD
    record = json.loads(path.read_text())
    record["suffix"] = "/../x"
    path.write_text(json.dumps(record))
    with pytest.raises(VerificationError, match="was changed: its digest is not right"):
        folder(source, force=True)
    path.unlink()
    path.symlink_to(source / "0.csv")
    with pytest.raises(Exception, match="leads through a link"):
        folder(source, resume=True)


def test_an_input_may_be_corrected_until_it_has_an_output(source: Path) -> None:
    folder(source, "1/2").run(SETTINGS, copy)
    write(source, "1.csv", content="text\nb\nc\n")  # of the second shard
    assert folder(source, "2/2").run(SETTINGS, copy).rows == 7
    os.utime(source / "0.csv", ns=(0, 0))
    # A shard checks its own files.
    assert folder(source, "2/2", resume=True).run(SETTINGS, copy).skipped == 3
    with pytest.raises(VerificationError, match=r"0\.csv was changed after .*0\.csv was written"):
        folder(source, "1/2", resume=True).run(SETTINGS, copy)
    (source.parent / "out" / "0.csv").unlink()
    assert folder(source, "1/2", resume=True).run(SETTINGS, copy).written == 1
