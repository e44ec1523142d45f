from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import huggingface_hub
import pytest

from tests.conftest import reload_hub_settings
from tests.hub.conftest import ETAGS, FILES, NEEDED, REPO, WEIGHTS, Fetch, partial
from tests.hub.hub_server import LISTING, Hub
from zoo.errors import SourceError, VerificationError
from zoo.hub.metadata import metadata_path


def damage(path: Path, how: str) -> None:
    content = path.read_bytes()
    other = {"bit": content[:-1] + bytes([content[-1] ^ 1]), "short": content[:-1], "empty": b""}
    path.resolve().write_bytes(other[how])


@pytest.mark.parametrize("how", ["bit", "short", "empty"])
@pytest.mark.parametrize("name", [WEIGHTS, "config.json"])
def test_a_cached_file_that_changed_is_downloaded_again(
    hub: Hub, commit: str, get: Fetch, name: str, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    first = get()
    damage(first.directory / name, how)
    for _ in range(2):
        with pytest.raises(VerificationError) as error:
            get(offline=True)
        assert str(error.value) == (
            f"{REPO} {name} in the cache is damaged: it does not match its digest; "
            f"run `zoo fetch {REPO}` while online to download it again"
        )
    caplog.set_level("INFO", "zoo")
    assert get() == first
    said = [record.message for record in caplog.records if record.name == "zoo"]
    assert said == [f"{REPO} {name} in the cache is damaged; downloading it again"]
    assert (first.directory / name).read_bytes() == FILES[name]
    assert hub.sent(name) == 2 * len(FILES[name])
    assert get(offline=True) == first


def test_files_cached_by_huggingface_hub_are_used_and_checked(
    hub: Hub, commit: str, get: Fetch
) -> None:
    for name in NEEDED:
        huggingface_hub.hf_hub_download(REPO, name)
    hub.requests.clear()
    fetched = get()
    assert fetched.files[WEIGHTS].sha256 == ETAGS[WEIGHTS]
    assert [request.what for request in hub.requests] == [LISTING]


def test_files_cached_by_huggingface_hub_are_used_offline(
    hub: Hub, commit: str, get: Fetch
) -> None:
    for name in NEEDED:
        huggingface_hub.hf_hub_download(REPO, name)
    hub.requests.clear()
    fetched = get(offline=True)
    assert fetched.revision == commit
    assert fetched.files[WEIGHTS].sha256 == ETAGS[WEIGHTS]
    assert hub.requests == []
    assert get(offline=True) == fetched
    # files found offline are not recorded as the complete list
    assert "README.md" in get(revision=commit, select=lambda names: ["README.md"]).files


@pytest.mark.parametrize("name", [WEIGHTS, "config.json"])
def test_damaged_files_cached_by_huggingface_hub_are_detected(
    commit: str, get: Fetch, name: str
) -> None:
    for needed in NEEDED:
        path = Path(huggingface_hub.hf_hub_download(REPO, needed))
    damage(path.with_name(name), "bit")
    with pytest.raises(VerificationError, match=f"{name} in the cache is damaged"):
        get(offline=True)
    assert (get().directory / name).read_bytes() == FILES[name]


def test_blobs_shared_by_commits_are_checked(hub: Hub, commit: str, get: Fetch) -> None:
    damage(get().directory / WEIGHTS, "bit")
    hub.add(REPO, {**FILES, "config.json": b"{}"})
    assert (get().directory / WEIGHTS).read_bytes() == FILES[WEIGHTS]


def test_huggingface_hub_finds_downloaded_files(hub: Hub, commit: str, get: Fetch) -> None:
    directory = get().directory
    hub.requests.clear()
    for name in NEEDED:
        assert huggingface_hub.hf_hub_download(REPO, name, local_files_only=True) == str(
            directory / name
        )
    assert huggingface_hub.snapshot_download(REPO, local_files_only=True) == str(directory)
    assert hub.requests == []
    (repo,) = huggingface_hub.scan_cache_dir().repos
    (revision,) = repo.revisions
    assert (repo.repo_id, revision.commit_hash, [*revision.refs]) == (REPO, commit, ["main"])
    assert {file.blob_path.name for file in revision.files} == {ETAGS[name] for name in NEEDED}


def test_without_symbolic_links(
    hub: Hub, commit: str, get: Fetch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_DISABLE_SYMLINKS", "1")
    reload_hub_settings()
    fetched = get()
    assert [path for path in fetched.directory.iterdir() if path.is_symlink()] == []
    assert (fetched.directory / WEIGHTS).read_bytes() == FILES[WEIGHTS]
    hub.requests.clear()
    assert get(offline=True) == fetched
    damage(fetched.directory / WEIGHTS, "bit")
    with pytest.raises(VerificationError, match="damaged"):
        get(offline=True)
    assert get() == fetched
    assert (fetched.directory / WEIGHTS).read_bytes() == FILES[WEIGHTS]


def test_concurrent_fetches_download_once(hub: Hub, commit: str, get: Fetch) -> None:
    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(lambda _: get(), range(4)))
    assert [result for result in results if result != results[0]] == []
    assert hub.sent(WEIGHTS) == len(FILES[WEIGHTS])


@pytest.mark.parametrize("content", [b"", b"{", b'{"zoo": 1}', b'{"zoo": 1, "other": 2}'])
def test_a_damaged_record_is_named(commit: str, get: Fetch, content: bytes) -> None:
    first = get()
    path = metadata_path(REPO, commit)
    path.write_bytes(content)
    with pytest.raises(VerificationError) as error:
        get()
    assert str(error.value).startswith(str(path))
    assert str(error.value).endswith("; delete it; it is created again")
    path.unlink()
    assert get() == first


def test_metadata_of_another_repository_is_refused(hub: Hub, commit: str, get: Fetch) -> None:
    get()
    other = hub.add("someone/other", FILES)
    path = metadata_path("someone/other", other)
    path.parent.mkdir(parents=True)
    path.write_bytes(metadata_path(REPO, commit).read_bytes())
    with pytest.raises(VerificationError, match=f"{path} is not a record of someone/other"):
        get("someone/other")


def test_partial_file_is_not_used_as_file(hub: Hub, commit: str, get: Fetch) -> None:
    partial(WEIGHTS, FILES[WEIGHTS])  # complete, but not verified
    with pytest.raises(SourceError, match="not in the cache"):
        get(offline=True)
    assert get().files[WEIGHTS].sha256 == ETAGS[WEIGHTS]
    assert hub.sent(WEIGHTS) == 1
    assert not partial().exists()
