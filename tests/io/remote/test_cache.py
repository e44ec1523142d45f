"""Files that URLs name, as a command reads them."""

import os
import random
import sys
from pathlib import Path

import pytest

from tests.remote import DENIED, Store, Web
from zoo.errors import SourceError, UsageError, VerificationError, with_places
from zoo.io import retries
from zoo.io.remote import client
from zoo.io.remote.cache import fetch, forget_snapshots
from zoo.io.urls import RemoteUrl

CONTENT = random.Random(1).randbytes(300_000)


def test_a_local_path_is_its_own_copy(tmp_path: Path) -> None:
    assert fetch(tmp_path / "a") == tmp_path / "a"
    assert not Path(os.environ["ZOO_HOME"]).exists()


def test_an_object_is_downloaded_once(store: Store) -> None:
    store["texts/a.txt"] = CONTENT
    path = fetch(store.at("texts/a.txt"))
    assert path.read_bytes() == CONTENT
    assert path.name == "a.txt"
    forget_snapshots()
    store.log.clear()
    assert fetch(Path(store.at("texts/a.txt"))) == path  # its text has one slash
    assert {method for method, _ in store.log} == {"HEAD"}


@pytest.mark.long
def test_a_folder_and_patterns(store: Store, tmp_path: Path) -> None:
    names = ["a.txt", "b.jsonl", "deep/c.txt", "deep/deeper/d.txt", ".hidden.txt", "b.txt.d/e"]
    for name in names:
        store[f"data/{name}"] = name.encode()
        local = tmp_path / "data" / name
        local.parent.mkdir(parents=True, exist_ok=True)
        local.write_bytes(name.encode())
    store["data2/other.txt"] = b""  # its name begins like that of the folder
    folder = fetch(store.at("data/"))
    assert sorted(p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file()) == (
        sorted(names)
    )
    for pattern in ("*.txt", "**/*.txt", "de*/**", "*/[cd]*", "?.jsonl", "**/deeper", ".h*"):
        path = fetch(store.at(f"data/{pattern}"))
        root = next(parent for parent in path.parents if parent.name == "data")
        fetched = sorted(p.relative_to(root) for p in root.rglob("*") if p.is_file())
        # The reader of documents takes all files of a folder that a pattern matches.
        from zoo.data.readers.documents import expand_paths

        expected = expand_paths([tmp_path / "data" / pattern])
        assert fetched == sorted(p.relative_to(tmp_path / "data") for p in expected), pattern


def test_a_changed_object_is_another_copy(store: Store) -> None:
    store["a.txt"] = b"one"
    first = fetch(store.at("a.txt"))
    store["a.txt"] = b"two"
    assert fetch(store.at("a.txt")) == first  # a command reads one version
    forget_snapshots()
    second = fetch(store.at("a.txt"))
    assert (first.read_bytes(), second.read_bytes()) == (b"one", b"two")


def test_an_object_that_changes_during_its_download(
    store: Store, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    store["a.txt"] = CONTENT
    monkeypatch.setattr(client, "BLOCK_BYTES", 100_000)
    remote = client.find_all(RemoteUrl("s3", store.bucket, ""))[0]
    store["a.txt"] = CONTENT[::-1]
    with (
        pytest.raises(VerificationError, match=r"a\.txt changed while it was read"),
        (tmp_path / "copy").open("w+b") as target,
    ):
        client.download(remote, target, lambda _: None)


def test_a_damaged_copy_is_downloaded_again(store: Store) -> None:
    store["a.txt"] = CONTENT
    path = fetch(store.at("a.txt"))
    path.write_bytes(CONTENT[::-1])
    forget_snapshots()
    assert fetch(store.at("a.txt")).read_bytes() == CONTENT


def test_requests_that_fail_are_repeated(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "BLOCK_BYTES", 60_000)
    monkeypatch.setattr(retries, "INITIAL_DELAY", 0.02)
    for number in range(5):
        store[f"d/{number}"] = CONTENT[number:]
    store.failing = 0.25
    folder = fetch(store.at("d"))
    assert [(folder / str(n)).read_bytes() for n in range(5)] == [CONTENT[n:] for n in range(5)]
    assert store.failed > 5


@pytest.mark.by_default("s3://denied/a.txt")
@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("s3://BUCKET/none.txt", "none.txt does not exist"),
        ("s3://BUCKET/*.none", "matches nothing"),
        ("s3://no-such-bucket/a", "no-such-bucket/a does not exist"),
        (f"s3://{DENIED}/a.txt", f"s3://{DENIED}/a.txt: access is denied"),
        (f"s3://{DENIED}/folder/", f"s3://{DENIED}/folder: access is denied"),
    ],
)
def test_what_cannot_be_read(store: Store, url: str, message: str) -> None:
    with pytest.raises(SourceError) as error:
        fetch(url.replace("BUCKET", store.bucket))
    assert message in str(error.value)
    assert "\n" not in str(error.value) and error.value.exit_code == 4


def test_no_credentials(store: Store, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", os.devnull)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    with pytest.raises(SourceError, match="there are no valid credentials"):
        fetch(store.at("a.txt"))


@pytest.mark.parametrize("package", ["fsspec", "s3fs"])
def test_without_the_extra(package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(
        SourceError, match="takes fsspec and s3fs, which are not installed"
    ) as error:
        fetch("s3://bucket/a.txt")
    assert error.value.hint == "pip install fsspec s3fs"


def test_a_server_that_never_answers_well_ends_the_retries(store: Store) -> None:
    store["a.txt"] = b"text"
    store.failing = 1.0
    with pytest.raises(SourceError, match=r"a\.txt: "):
        fetch(store.at("a.txt"))
    assert len(store.log) < 60


@pytest.mark.parametrize("key", ["a/../../b.txt", "a//b.txt", "/b.txt", "a\\b.txt"])
def test_an_object_whose_name_leads_out_of_the_folder(store: Store, key: str) -> None:
    from zoo.io.urls import require_safe_key

    with pytest.raises(UsageError, match="not the path of a file"):
        require_safe_key(key, "the listing of s3://b")
    with pytest.raises(UsageError, match="not the path of a file"):
        fetch(f"s3://{store.bucket}/{key}")


def test_an_object_that_is_also_a_folder(store: Store) -> None:
    store["d/a"] = b"1"
    store["d/a/b"] = b"2"
    with pytest.raises(UsageError, match="d/a is an object and a folder of others"):
        fetch(store.at("d"))


@pytest.mark.parametrize("has_ranges", [True, False])
@pytest.mark.parametrize("etags", [True, False])
def test_a_file_of_a_web_server(
    web: Web, has_ranges: bool, etags: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "BLOCK_BYTES", 100_000)
    web.files["/d/a.bin"] = CONTENT
    web.has_ranges = has_ranges
    web.etags = etags
    web.cut = 2
    path = fetch(f"{web.url}/d/a.bin?signature=hunter2")
    assert path.read_bytes() == CONTENT
    assert path.name == "a.bin"
    assert web.cut == 0
    assert with_places(str(path)) == f"{web.url}/d/a.bin"
    assert any(wanted for _, _, wanted in web.log) == has_ranges
    gets = sum(method == "GET" for method, _, _ in web.log)
    forget_snapshots()
    fetch(f"{web.url}/d/a.bin?signature=hunter2")
    repeated = sum(method == "GET" for method, _, _ in web.log) > gets
    assert repeated != etags  # Without a version, the file may be another one.


def test_what_a_web_server_does_not_have(web: Web) -> None:
    with pytest.raises(SourceError, match="/none does not exist"):
        fetch(f"{web.url}/none?token=hunter2")
    with pytest.raises(SourceError, match="/d does not exist"):
        fetch(f"{web.url}/d/")
    with pytest.raises(SourceError) as error:
        fetch("http://127.0.0.1:9/a?token=hunter2")
    assert "hunter2" not in str(error.value) and error.value.exit_code == 4


def test_credentials_in_a_url_are_refused_and_not_shown() -> None:
    for url in ("https://user:hunter2@host/a", "s3://key:hunter2@bucket/a"):
        with pytest.raises(UsageError, match="has a user name or a password") as error:
            fetch(url)
        assert "hunter2" not in str(error.value)
