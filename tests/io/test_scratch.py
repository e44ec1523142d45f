"""Temporary files on a disk that is full."""

import errno
import os
import tempfile
from pathlib import Path

import pytest

from tests.disks import fill, small_disk
from zoo.errors import UsageError
from zoo.io.output.atomic import atomic_directory
from zoo.io.scratch import memory_file, scratch_directory, scratch_file, writing_scratch

__all__ = ["small_disk"]


@pytest.fixture
def temporary_disk(small_disk: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(small_disk))
    fill(small_disk, 8192)
    return small_disk


def check(error: UsageError, disk: Path) -> None:
    assert error.what == f"cannot write temporary files in {disk}: No space left on device"
    assert "set TMPDIR" in error.hint
    assert [path.name for path in disk.iterdir()] == ["filler"]


def test_a_directory_of_temporary_files_is_named(temporary_disk: Path) -> None:
    with pytest.raises(UsageError) as error, scratch_directory() as scratch:
        (scratch / "a").write_bytes(bytes(100_000))
    check(error.value, temporary_disk)


def test_a_temporary_file_is_named(temporary_disk: Path) -> None:
    with pytest.raises(UsageError) as error, scratch_file() as file, writing_scratch():
        file.write(bytes(100_000))
        file.flush()
    check(error.value, temporary_disk)


def test_an_output_within_is_not_taken_for_temporary_files(
    small_disk: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    fill(small_disk, 8192)
    with (
        pytest.raises(UsageError, match=f"cannot write {small_disk}/out: No space"),
        atomic_directory(small_disk / "out") as staging,
        scratch_directory(is_only_folder=False),
    ):
        (staging / "a").write_bytes(bytes(100_000))


def test_a_scratch_directory_in_an_output_belongs_to_it(small_disk: Path) -> None:
    fill(small_disk, 8192)
    with (
        pytest.raises(UsageError, match=f"cannot write {small_disk}/out: No space"),
        atomic_directory(small_disk / "out") as staging,
        scratch_directory(staging) as scratch,
    ):
        (scratch / "a").write_bytes(bytes(100_000))


def test_no_directory_that_can_be_written(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> str:
        raise FileNotFoundError(errno.ENOENT, "No usable temporary directory found")

    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setattr(tempfile, "_get_default_tempdir", refuse)
    with pytest.raises(UsageError, match=r"temporary files in \$TMPDIR: No usable"):
        scratch_file()


def test_a_file_in_memory_takes_no_disk(temporary_disk: Path) -> None:
    with memory_file() as file:
        file.write(bytes(100_000))
        file.seek(0)
        assert len(file.read()) == 100_000
        assert os.fstat(file.fileno()).st_nlink == 0
