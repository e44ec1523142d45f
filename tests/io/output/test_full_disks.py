"""Errors of the system, and of libraries that write, on disks that are full."""

import errno
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from tests.disks import fill, read_only, small_disk
from zoo.errors import UsageError
from zoo.io.output import resumable
from zoo.io.output.atomic import atomic_directory, atomic_write
from zoo.io.output.full_disks import cause_on_disk, writing
from zoo.io.output.resumable import part_of, resumable_output
from zoo.io.output.tables import table_writer

__all__ = ["small_disk"]
ROOM = 100_000
NO_ROOM = "nothing was left behind; make room, or write to another disk"


def left_on(disk: Path) -> list[str]:
    return sorted(path.name for path in disk.rglob("*") if path.name != "filler")


def write_safetensors(folder: Path) -> None:
    save_file({"a": np.zeros(ROOM, np.float32)}, folder / "a.safetensors")


def write_array(folder: Path) -> None:
    with (folder / "a.bin").open("wb", buffering=0) as file:
        np.zeros(ROOM, np.float32).tofile(file)


def write_bytes(folder: Path) -> None:
    (folder / "a").write_bytes(bytes(4 * ROOM))


@pytest.mark.parametrize("write", [write_safetensors, write_array, write_bytes])
@pytest.mark.parametrize("left", [0, ROOM])
def test_each_writer_of_a_library_is_named_by_the_output(
    small_disk: Path, write: Any, left: int
) -> None:
    fill(small_disk, left)
    with pytest.raises(UsageError) as error, atomic_directory(small_disk / "p/out") as staging:
        write(staging)
    assert error.value.what == f"cannot write {small_disk}/p/out: No space left on device"
    assert error.value.hint == NO_ROOM
    assert isinstance(error.value.__cause__, OSError)
    assert left_on(small_disk) == []


def test_a_directory_in_one_that_is_not_complete_has_its_name(small_disk: Path) -> None:
    fill(small_disk, ROOM)
    with (
        pytest.raises(UsageError, match=f"cannot write {small_disk}/out/inner: No space"),
        atomic_directory(small_disk / "out") as staging,
        atomic_directory(staging / "inner") as inner,
    ):
        write_bytes(inner)


def test_a_bug_on_a_disk_with_room_stays_a_bug(small_disk: Path) -> None:
    with pytest.raises(ZeroDivisionError), atomic_directory(small_disk / "out"):
        raise ZeroDivisionError
    assert cause_on_disk(KeyError("a"), small_disk) is None
    assert cause_on_disk(KeyboardInterrupt(), small_disk) is None
    assert left_on(small_disk) == []


def test_a_cause_is_in_the_folder_that_is_written(small_disk: Path, tmp_path: Path) -> None:
    inside = OSError(errno.ENOSPC, "full", str(small_disk / "a"))
    outside = OSError(errno.ENOSPC, "full", str(tmp_path / "a"))
    unnamed = OSError(errno.ENOSPC, "full")
    in_words = RuntimeError(f"the writer failed: {os.strerror(errno.ENOSPC)} (os error 28)")
    assert cause_on_disk(inside, small_disk) is inside
    assert cause_on_disk(outside, small_disk) is None
    assert cause_on_disk(unnamed, small_disk) is unnamed
    assert cause_on_disk(unnamed, small_disk, is_only_folder=False) is None
    found = cause_on_disk(in_words, small_disk)
    assert found is not None and found.errno == errno.ENOSPC
    assert cause_on_disk(OSError(errno.EIO, "broken", str(small_disk / "a")), small_disk) is None
    fill(small_disk, 0)
    assert cause_on_disk(unnamed, small_disk, is_only_folder=False) is not None
    assert cause_on_disk(KeyError("a"), small_disk) is not None


def test_a_read_only_disk_says_what_to_do(small_disk: Path) -> None:
    path = small_disk / "a"
    read_only(small_disk)
    with pytest.raises(UsageError) as error, writing(path):
        atomic_write(path, b"a")
    assert error.value.what == f"cannot write {path}: Read-only file system"
    assert error.value.hint == "nothing was left behind; write to another place"


def rows(count: int) -> list[dict[str, Any]]:
    return [{"text": f"{number} " + "word " * 20, "list": [number]} for number in range(count)]


ENDINGS = ["jsonl", "csv", "tsv", "parquet"]


@pytest.mark.parametrize("left", [0, 8192, ROOM])
@pytest.mark.parametrize("ending", ENDINGS)
def test_a_table_is_named_and_nothing_of_it_stays(small_disk: Path, ending: str, left: int) -> None:
    path = small_disk / "p" / f"rows.{ending}"
    fill(small_disk, left)
    noise = np.random.default_rng(1)
    with pytest.raises(UsageError) as error, table_writer(path) as write:
        for number in range(5000):
            write({"number": number, "text": noise.bytes(60).hex()})
    assert error.value.what == f"cannot write {path}: No space left on device"
    assert error.value.hint == NO_ROOM
    assert left_on(small_disk) == []


@pytest.mark.parametrize("ending", ENDINGS)
def test_rows_that_are_recorded_stay_and_are_continued(
    small_disk: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ending: str
) -> None:
    monkeypatch.setattr(resumable, "SECONDS", 0.0)
    path, whole = small_disk / f"rows.{ending}", tmp_path / f"rows.{ending}"
    fill(small_disk, ROOM)
    with pytest.raises(UsageError) as error, resumable_output(path, {}) as output:
        for row in rows(5000):
            output.write(row)
            if (output.rows % 100) == 0:
                output.mark()
    kept = json.loads(part_of(path).with_name(f"{path.name}.part.json").read_text())["rows"]
    assert error.value.what == f"cannot write {part_of(path)}: No space left on device"
    assert error.value.hint == (
        f"{part_of(path)} keeps {kept:,} complete rows; make room, and --resume continues after "
        "them"
    )
    assert kept >= 100 and not path.exists()
    (small_disk / "filler").unlink()
    with resumable_output(path, {}, resume=True) as output:
        assert output.rows == kept
        for row in rows(1000)[kept:]:
            output.write(row)
    with resumable_output(whole, {}) as output:
        for row in rows(1000):
            output.write(row)
    assert path.read_bytes() == whole.read_bytes()
    assert left_on(small_disk) == [path.name]


def test_without_a_record_nothing_stays(small_disk: Path) -> None:
    path = small_disk / "rows.jsonl"
    fill(small_disk, 8192)
    with pytest.raises(UsageError, match=NO_ROOM), resumable_output(path, {}) as output:
        for row in rows(1000):
            output.write(row)
    assert left_on(small_disk) == []
