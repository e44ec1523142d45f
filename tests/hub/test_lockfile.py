import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.hub.conftest import FILES, NEEDED, REPO, WEIGHTS, Fetch
from tests.hub.hub_server import LISTING, Hub
from zoo.errors import SourceError, UsageError, VerificationError
from zoo.hub.lockfile import Lock


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    return tmp_path / "work" / "zoo.lock"


def opened(path: Path | None) -> Lock:
    lock = Lock.open(path)
    assert lock is not None
    return lock


def edit(path: Path, **changes: Any) -> None:
    content = json.loads(path.read_text())
    content["models"][f"{REPO}@main"].update(changes)
    path.write_text(json.dumps(content))


def test_no_lock_unless_there_is_one(path: Path, commit: str, get: Fetch) -> None:
    assert Lock.open(None) is None
    get(lock=None)
    assert not path.exists()


def test_a_file_that_is_named_is_made(path: Path) -> None:
    opened(path)
    assert json.loads(path.read_text()) == {"zoo": 1, "models": {}}
    opened(None)


def test_a_new_repository_is_added(hub: Hub, path: Path, commit: str, get: Fetch) -> None:
    fetched = get(lock=opened(path))
    files = {
        name: {"bytes": known.bytes, "blake3": known.blake3}
        | ({"sha256": known.sha256} if known.sha256 else {})
        for name, known in fetched.files.items()
    }
    assert json.loads(path.read_text()) == {
        "zoo": 1,
        "models": {f"{REPO}@main": {"revision": commit, "files": files}},
    }
    assert path.read_text().count("\n") > 10  # formatted for diffs by line
    assert [p.name for p in path.parent.iterdir()] == ["zoo.lock"]


def test_a_second_one_is_added_to_the_first(hub: Hub, path: Path, commit: str, get: Fetch) -> None:
    hub.add("a/b", FILES, branch="v1")
    get(lock=opened(path))
    get("a/b", revision="v1", lock=opened(None))
    assert list(json.loads(path.read_text())["models"]) == ["a/b@v1", f"{REPO}@main"]


def test_two_locks_that_are_open_at_once_both_count(
    hub: Hub, path: Path, commit: str, get: Fetch
) -> None:
    hub.add("a/b", FILES)
    first, two = opened(path), opened(path)
    get(lock=first)
    get("a/b", lock=two)
    assert len(json.loads(path.read_text())["models"]) == 2


ADDING = """
import sys
from pathlib import Path
from zoo.io.digests.files import FileDigest
from zoo.hub.lockfile import Lock
print("ready", flush=True)
sys.stdin.readline()
for number in range(10):
    lock = Lock.open(Path("zoo.lock"))
    lock.add(f"{sys.argv[1]}/{number}", "main", "0" * 40, {"a": FileDigest(bytes=0, blake3="")})
"""


@pytest.mark.long
def test_processes_that_add_at_once_lose_nothing(path: Path) -> None:
    running = [
        subprocess.Popen(
            [sys.executable, "-c", ADDING, str(name)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for name in range(4)
    ]
    for process in running:
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
    for process in running:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    for process in running:
        process.communicate(timeout=60)
    assert [process.returncode for process in running] == [0] * 4
    result = json.loads(path.read_text())["models"]
    assert sorted(result) == sorted(f"{a}/{b}@main" for a in range(4) for b in range(10))
    assert [p.name for p in path.parent.iterdir()] == ["zoo.lock"]


def test_the_commit_is_pinned_on_another_machine(
    hub: Hub, path: Path, commit: str, get: Fetch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = get(lock=opened(path))
    newer = hub.add(REPO, {**FILES, "config.json": b"{}"})
    monkeypatch.setenv("ZOO_HOME", str(tmp_path / "other"))
    for revision in (None, "main", commit):
        again = get(revision=revision, lock=opened(path))
        assert again.revision == first.revision == commit
    assert get(lock=None).revision == newer


def test_a_locked_commit_that_is_here_is_not_asked_for(
    hub: Hub, path: Path, commit: str, get: Fetch
) -> None:
    get(lock=opened(path))
    hub.requests.clear()
    get(lock=opened(path))
    assert hub.requests == []
    get(lock=opened(path), offline=True)


def test_unlocked_files_of_a_locked_repository_are_added(
    path: Path, commit: str, get: Fetch
) -> None:
    get(lock=opened(path), select=lambda names: ["config.json"])
    before = json.loads(path.read_text())["models"][f"{REPO}@main"]["files"]
    get(lock=opened(path))
    after = json.loads(path.read_text())["models"][f"{REPO}@main"]["files"]
    assert list(before) == ["config.json"]
    assert list(after) == sorted(NEEDED)
    assert after["config.json"] == before["config.json"]


def test_unchanged_lock_is_not_written(path: Path, commit: str, get: Fetch) -> None:
    get(lock=opened(path))
    before = path.stat()
    get(lock=opened(path))
    get(lock=opened(path), select=lambda names: ["config.json"])
    after = path.stat()
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


@pytest.mark.parametrize("revision", ["v2", "0" * 40])
def test_another_revision_is_refused(
    hub: Hub, path: Path, commit: str, get: Fetch, revision: str
) -> None:
    hub.add(REPO, FILES, branch="v2")
    get(lock=opened(path))
    hub.requests.clear()
    with pytest.raises(UsageError) as error:
        get(revision=revision, lock=opened(path))
    assert str(error.value) == (
        f"{path} locks {REPO} to main ({commit[:12]}), not {revision}; "
        f"leave the revision out, or remove '{REPO}@main' from {path}"
    )
    assert hub.requests == []


@pytest.mark.parametrize("change", [{"blake3": "0" * 64}, {"bytes": 1}])
@pytest.mark.parametrize("name", ["config.json", WEIGHTS])
def test_another_file_is_refused(
    path: Path, commit: str, get: Fetch, name: str, change: dict[str, Any]
) -> None:
    get(lock=opened(path))
    files = json.loads(path.read_text())["models"][f"{REPO}@main"]["files"]
    edit(path, files={**files, name: {**files[name], **change}})
    before = path.read_bytes()
    with pytest.raises(VerificationError) as error:
        get(lock=opened(path))
    assert str(error.value).startswith(f"{REPO} {name} is not the file that {path} locks; ")
    assert path.read_bytes() == before


def test_locked_commit_that_was_deleted(hub: Hub, path: Path, commit: str, get: Fetch) -> None:
    get(lock=opened(path))
    edit(path, revision="1" * 40)
    hub.requests.clear()
    with pytest.raises(SourceError, match=f"{REPO} has no revision '1111"):
        get(lock=opened(path))
    assert hub.requested(LISTING) == [0]


@pytest.mark.parametrize(
    ("content", "what"),
    [
        ("", "is not JSON"),
        ("[]", "Expected `object`"),
        ('{"zoo": 1, "models": {}, "extra": 1}', "unknown field `extra`"),
        ('{"zoo": 1, "models": {"a/b@main": {"revision": "../..", "files": {}}}}', "regex"),
        ('{"zoo": 2, "models": {}}', "is of layout 2; install a newer plm-zoo"),
    ],
)
def test_a_damaged_lock_is_named(path: Path, content: str, what: str) -> None:
    path.write_text(content)
    with pytest.raises(VerificationError) as error:
        Lock.open(path)
    assert str(error.value).startswith(str(path))
    assert what in str(error.value)


def test_a_lock_that_cannot_be_written(path: Path) -> None:
    (path.parent / "file").write_text("in the way")
    with pytest.raises(UsageError, match=r"^cannot write .*; give another --lock$"):
        Lock.open(path.parent / "file" / "zoo.lock")
