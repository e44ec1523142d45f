"""The cache of arrays: one process makes them, all others map them, and damage is mended."""

import logging
import multiprocessing
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.disks import fill, small_disk
from zoo.data.cached_arrays import cached_arrays
from zoo.io.cached_directories import MAX_CACHED
from zoo.io.cached_files import MANIFEST
from zoo.io.paths import home

__all__ = ["small_disk"]

Arrays = dict[str, NDArray[Any]]
ARRAYS: Arrays = {
    "first": np.arange(12, dtype=np.uint32).reshape(3, 4),
    "second": np.array([2, 0, 1], dtype=np.uint8),
}
PROCESSES = 4


def _never() -> Arrays:
    raise AssertionError("the arrays are in the cache")


def assert_right(arrays: Arrays) -> None:
    assert arrays.keys() == ARRAYS.keys()
    for name, array in arrays.items():
        assert array.dtype == ARRAYS[name].dtype
        np.testing.assert_array_equal(array, ARRAYS[name])


def test_arrays_are_made_once_and_mapped() -> None:
    assert_right(cached_arrays("kind", "key", lambda: ARRAYS))
    again = cached_arrays("kind", "key", _never)
    assert_right(again)
    assert {type(array) for array in again.values()} == {np.memmap}
    assert not again["first"].flags.writeable
    other = cached_arrays("kind", "other", lambda: {"first": np.zeros(1)})
    assert other["first"].tolist() == [0]


def _use(log: Path) -> None:
    def make() -> Arrays:
        with log.open("a") as file:
            file.write("made\n")
        time.sleep(0.2)
        return ARRAYS

    assert_right(cached_arrays("kind", "key", make))


def test_processes_that_meet_make_them_once(tmp_path: Path) -> None:
    log = tmp_path / "log"
    context = multiprocessing.get_context("fork")
    processes = [context.Process(target=_use, args=(log,)) for _ in range(PROCESSES)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0] * PROCESSES
    assert log.read_text() == "made\n"
    assert [path.name for path in (home() / "kind").iterdir()] == ["key"]  # no lock is left


def _flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


DAMAGES: dict[str, Callable[[Path], object]] = {
    "changed": lambda entry: _flip(entry / "first.npy"),
    "short": lambda entry: (entry / "first.npy").write_bytes(b""),
    "missing": lambda entry: (entry / "second.npy").unlink(),
    "stray": lambda entry: (entry / "third.npy").write_bytes(b""),
    "manifest": lambda entry: _flip(entry / MANIFEST),
    "unreadable": lambda entry: (entry / MANIFEST).write_text("{"),
    "no-manifest": lambda entry: (entry / MANIFEST).unlink(),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_arrays_are_made_again(damage: str, caplog: pytest.LogCaptureFixture) -> None:
    cached_arrays("kind", "key", lambda: ARRAYS)
    DAMAGES[damage](home() / "kind" / "key")
    with caplog.at_level(logging.WARNING, "zoo"):
        assert_right(cached_arrays("kind", "key", lambda: ARRAYS))
    assert str(home() / "kind" / "key") in caplog.text
    assert_right(cached_arrays("kind", "key", _never))


def test_without_a_folder_that_can_be_written_they_are_made_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("ZOO_HOME", str(tmp_path / "file"))
    made = []
    with caplog.at_level(logging.WARNING, "zoo"):
        assert_right(cached_arrays("kind", "key", lambda: made.append(1) or ARRAYS))  # type: ignore[func-returns-value]
    assert made == [1]
    assert "kind are built again at every start" in caplog.text


def test_a_full_disk_leaves_nothing(
    small_disk: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("ZOO_HOME", str(small_disk / "home"))
    large = {"first": np.arange(1 << 16)}
    fill(small_disk, 100_000)
    made = []
    with caplog.at_level(logging.WARNING, "zoo"):
        arrays = cached_arrays("kind", "key", lambda: made.append(1) or large)  # type: ignore[func-returns-value]
    assert made == [1]
    np.testing.assert_array_equal(arrays["first"], large["first"])
    assert "No space left" in caplog.text
    assert list((small_disk / "home").rglob("*.npy")) == []


def test_the_least_recently_used_arrays_are_evicted() -> None:
    for number in range(MAX_CACHED + 1):
        cached_arrays("kind", f"key{number}", lambda: ARRAYS)
    names = {path.name for path in (home() / "kind").iterdir()}
    assert names == {f"key{number}" for number in range(1, MAX_CACHED + 1)}
