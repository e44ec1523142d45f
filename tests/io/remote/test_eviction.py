"""Copies of remote files that are removed to make room."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.remote import Store
from zoo.errors import UsageError
from zoo.io import cached_directories
from zoo.io.remote import cache, eviction
from zoo.io.remote.cache import fetch, forget_snapshots

SIZE = 100_000


@pytest.fixture(autouse=True)
def few_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Limit the copies to 2.5 objects."""
    monkeypatch.setattr(cache, "max_download_bytes", lambda: SIZE * 5 // 2)


def downloads() -> dict[str, int]:
    """Return the name of each downloaded file that a snapshot has -> its number of links."""
    folder = Path(os.environ["ZOO_HOME"], "downloads")
    links = {}
    for path in folder.rglob("*"):
        if path.is_file() and path.parent.name != "files":
            links[path.name] = path.stat().st_nlink
    return links


def copies() -> list[Path]:
    return [path for path in Path(os.environ["ZOO_HOME"], "downloads", "files").iterdir()]


def end_use() -> None:
    """Release what this process reads, as its end does."""
    forget_snapshots()
    for descriptor in cached_directories._IN_USE.values():
        os.close(descriptor)
    cached_directories._IN_USE.clear()


def put(store: Store, *names: str) -> None:
    for number, name in enumerate(names):
        store[name] = bytes([number]) * SIZE


def test_the_least_recently_used_is_removed(store: Store) -> None:
    put(store, "a", "b", "c")
    for name in ("a", "b", "a"):  # "a" is used again.
        fetch(store.at(name))
        end_use()
    path = fetch(store.at("c"))
    assert downloads() == {"a": 2, "c": 2}
    assert path.read_bytes() == bytes([2]) * SIZE
    assert len(copies()) == 4  # with their records
    end_use()
    assert fetch(store.at("b")).read_bytes() == bytes([1]) * SIZE
    assert downloads() == {"b": 2, "c": 2}


@pytest.mark.long
def test_what_another_process_reads_stays(store: Store) -> None:
    put(store, "a", "b", "c", "d")
    paths = [fetch(store.at(name)) for name in "abc"]
    assert [path.name for path in paths if not path.is_file()] == []
    end_use()
    # Another process reads one of them.
    code = (
        "import sys; from zoo.io.remote.cache import fetch; "
        f"fetch({store.at('a')!r}); print('ready', flush=True); sys.stdin.read()"
    )
    reader = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert reader.stdout is not None and reader.stdout.readline() == "ready\n"
    for name in "bcd":
        fetch(store.at(name))
        end_use()
    assert set(downloads()) == {"a", "d"}
    reader.communicate("")
    fetch(store.at("b"))
    end_use()
    fetch(store.at("c"))
    assert set(downloads()) == {"b", "c"}


def test_what_this_process_reads_stays(store: Store) -> None:
    put(store, "a", "b", "c", "d")
    paths = [fetch(store.at(name)) for name in "abc"]
    assert [path.name for path in paths if not path.is_file()] == []
    end_use()
    fetch(store.at("d"))
    assert set(downloads()) == {"c", "d"}


def test_a_copy_of_two_snapshots_is_removed_with_the_last_one(store: Store) -> None:
    put(store, "d/a", "d/b", "x", "y")
    fetch(store.at("d/a"))
    end_use()
    fetch(store.at("d"))
    end_use()
    assert sum(downloads().values()) == 2 + 3  # The path of "a" is the same in both snapshots.
    fetch(store.at("x"))
    end_use()
    assert set(downloads()) == {"x"} and len(copies()) == 2


def test_a_snapshot_that_is_too_large_is_complete(store: Store) -> None:
    put(store, "d/a", "d/b", "d/c", "d/e")
    folder = fetch(store.at("d"))
    assert len(list(folder.iterdir())) == 4


def test_the_limit_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    assert eviction.max_download_bytes() == 100 * 10**9
    monkeypatch.setenv("ZOO_MAX_DOWNLOADS_GB", "3")
    assert eviction.max_download_bytes() == 3 * 10**9
    for text in ("-1", "3.5", "much"):
        monkeypatch.setenv("ZOO_MAX_DOWNLOADS_GB", text)
        with pytest.raises(UsageError, match="ZOO_MAX_DOWNLOADS_GB is"):
            eviction.max_download_bytes()
