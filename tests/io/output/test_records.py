"""Records that several processes change at once."""

import json
import multiprocessing
from pathlib import Path

import pytest

from zoo.errors import UsageError
from zoo.io.cached_directories import MAX_CACHED, touch_and_evict, use_cached
from zoo.io.output.records import update_record

PROCESSES, CHANGES = 6, 20


def _read(path: Path) -> list[str]:
    names: list[str] = json.loads(path.read_bytes())
    return names


def _add(path: Path, name: str) -> None:
    update_record(
        path, _read, lambda names: [*names, name], lambda names: json.dumps(names).encode()
    )


def _add_many(path: Path, process: int) -> None:
    for number in range(CHANGES):
        _add(path, f"{process}-{number}")


def test_no_change_is_lost(tmp_path: Path) -> None:
    path = tmp_path / "record.json"
    path.write_text("[]")
    context = multiprocessing.get_context("fork")
    processes = [context.Process(target=_add_many, args=(path, k)) for k in range(PROCESSES)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0] * PROCESSES
    expected = {f"{k}-{number}" for k in range(PROCESSES) for number in range(CHANGES)}
    assert sorted(_read(path)) == sorted(expected)
    assert [file.name for file in tmp_path.iterdir()] == ["record.json"]  # no lock is left


def test_an_equal_record_is_not_written(tmp_path: Path) -> None:
    path = tmp_path / "record.json"
    path.write_text("[ ]")
    update_record(path, _read, lambda names: names, lambda names: json.dumps(names).encode())
    assert path.read_text() == "[ ]"


def test_a_link_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "mine.json").write_text("[]")
    (tmp_path / "record.json").symlink_to("mine.json")
    with pytest.raises(UsageError, match=r"record\.json is a link"):
        _add(tmp_path / "record.json", "a")
    assert (tmp_path / "mine.json").read_text() == "[]"


def test_what_another_process_reads_is_not_evicted(tmp_path: Path) -> None:
    """A process that has locked an old entry keeps it, and a new one takes its place later."""
    cache = tmp_path / "cache"
    names = [f"{number:02}" for number in range(MAX_CACHED + 2)]
    context = multiprocessing.get_context("fork")
    locked, done = context.Event(), context.Event()

    def hold() -> None:
        use_cached(cache / names[0])
        locked.set()
        done.wait(60)

    for name in names[:-2]:
        (cache / name).mkdir(parents=True)
        touch_and_evict(cache / name)
    reader = context.Process(target=hold)
    reader.start()
    assert locked.wait(60)
    for name in names[-2:]:
        (cache / name).mkdir()
        touch_and_evict(cache / name)
    assert sorted(path.name for path in cache.iterdir()) == [names[0], *names[2:]]
    done.set()
    reader.join()
    touch_and_evict(cache / names[-1])
    assert sorted(path.name for path in cache.iterdir()) == names[2:]


def test_an_entry_that_was_evicted_cannot_be_used(tmp_path: Path) -> None:
    assert not use_cached(tmp_path / "gone")
