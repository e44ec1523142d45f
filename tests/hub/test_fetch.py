import hashlib
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from blake3 import blake3

from tests.hub.conftest import FILES, NEEDED, REPO, WEIGHTS, Fetch
from tests.hub.hub_server import LISTING, TOKEN, Hub, tiny_safetensors
from zoo.errors import SourceError, UsageError, VerificationError


def test_fetch_downloads_selected_files_only(hub: Hub, commit: str, get: Fetch) -> None:
    fetched = get()
    assert (fetched.repo, fetched.revision) == (REPO, commit)
    assert list(fetched.files) == NEEDED
    here = {p.relative_to(fetched.directory).as_posix() for p in fetched.directory.rglob("*")}
    assert here == set(NEEDED)
    for name in NEEDED:
        assert (fetched.directory / name).read_bytes() == FILES[name]
        assert fetched.files[name].bytes == len(FILES[name])
        assert fetched.files[name].blake3 == blake3(FILES[name]).hexdigest()
    assert hub.sent("onnx/model.bin") == hub.sent("README.md") == 0


def test_sha256_of_lfs_files_is_recorded(commit: str, get: Fetch) -> None:
    files = get().files
    assert files[WEIGHTS].sha256 == hashlib.sha256(FILES[WEIGHTS]).hexdigest()
    assert files["config.json"].sha256 is None


def test_select_is_called_with_all_names(commit: str, get: Fetch) -> None:
    seen: list[str] = []

    def select(names: Sequence[str]) -> Sequence[str]:
        seen.extend(names)
        return ["onnx/model.bin", "onnx/model.bin"]

    fetched = get(select=select)
    assert seen == sorted(FILES)
    assert (fetched.directory / "onnx/model.bin").read_bytes() == FILES["onnx/model.bin"]


def test_each_file_is_requested_once(hub: Hub, commit: str, get: Fetch) -> None:
    get()
    paths = [request.what for request in hub.requests if request.method == "GET"]
    # huggingface_hub requests the list again to record the commit of the branch.
    assert paths == [LISTING, LISTING, "config.json", WEIGHTS]  # an empty file needs no request


def test_second_fetch_only_resolves_the_branch(hub: Hub, commit: str, get: Fetch) -> None:
    first = get()
    hub.requests.clear()
    assert get() == first
    assert [request.what for request in hub.requests] == [LISTING]


def test_cached_commit_needs_no_request(hub: Hub, commit: str, get: Fetch) -> None:
    first = get()
    hub.requests.clear()
    assert get(revision=commit) == first
    assert hub.requests == []


def test_moved_branch_downloads_changed_files(hub: Hub, commit: str, get: Fetch) -> None:
    old = get()
    changed = tiny_safetensors(2048)
    newer = hub.add(REPO, {**FILES, WEIGHTS: changed})
    hub.requests.clear()
    new = get()
    assert new.revision == newer != old.revision
    assert (new.directory / WEIGHTS).read_bytes() == changed
    assert (new.directory / "config.json").read_bytes() == FILES["config.json"]
    assert (hub.sent("config.json"), hub.sent(WEIGHTS)) == (0, len(changed))
    assert (old.directory / WEIGHTS).read_bytes() == FILES[WEIGHTS]


@pytest.mark.parametrize("branch", ["v1.0", "refs/pr/1"])
def test_tag_or_branch(hub: Hub, commit: str, get: Fetch, branch: str) -> None:
    other = hub.add(REPO, {**FILES, "config.json": b"{}"}, branch=branch)
    fetched = get(revision=branch)
    assert fetched.revision == other
    assert (fetched.directory / "config.json").read_bytes() == b"{}"


def test_token_opens_gated_repository_and_is_not_sent_to_storage(
    hub: Hub, get: Fetch, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.add(REPO, FILES, gated=True)
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    fetched = get()
    assert (fetched.directory / WEIGHTS).read_bytes() == FILES[WEIGHTS]
    authorized = {request.what: request.authorized for request in hub.requests}
    assert authorized == {LISTING: True, "config.json": True, "vocab.txt": True, WEIGHTS: False}


@pytest.mark.parametrize("token", [None, "hf_someone_else"])
def test_a_gated_repository_is_one_line(
    hub: Hub, get: Fetch, monkeypatch: pytest.MonkeyPatch, token: str | None
) -> None:
    hub.add(REPO, FILES, gated=True)
    if token:
        monkeypatch.setenv("HF_TOKEN", token)
    with pytest.raises(SourceError) as error:
        get()
    assert str(error.value) == (
        f"{REPO} is gated; accept its terms at {hub.url}/{REPO} and set $HF_TOKEN"
    )


@pytest.mark.parametrize("token", [None, TOKEN])
def test_a_missing_repository_is_one_line(
    hub: Hub, get: Fetch, monkeypatch: pytest.MonkeyPatch, token: str | None
) -> None:
    if token:
        monkeypatch.setenv("HF_TOKEN", token)
    with pytest.raises(SourceError) as error:
        get("someone/nothing")
    assert str(error.value) == (
        f"{hub.url} has no repository someone/nothing, or it is private; "
        "check the name; for a private one set $HF_TOKEN"
    )


def test_a_missing_revision_is_one_line(commit: str, get: Fetch) -> None:
    with pytest.raises(SourceError, match=rf"^{REPO} has no revision 'v9'; give a branch"):
        get(revision="v9")


def test_missing_selected_file(commit: str, get: Fetch) -> None:
    with pytest.raises(SourceError, match=f"{REPO} has no file tokenizer.json at {commit[:12]}"):
        get(select=lambda names: ["tokenizer.json"])


@pytest.mark.parametrize("repo", ["someone/../x", "a b/c", "someone/x.git", "-x/y", "a/b/c", ""])
def test_a_malformed_name_is_refused_before_any_request(hub: Hub, get: Fetch, repo: str) -> None:
    with pytest.raises(UsageError, match="cannot be a Hub repository; give it as"):
        get(repo)
    assert hub.requests == []


@pytest.mark.parametrize("revision", ["../../x", "a/../b", "/etc/passwd", "", "-x"])
def test_a_malformed_revision_is_refused(hub: Hub, commit: str, get: Fetch, revision: str) -> None:
    with pytest.raises(UsageError, match="is not a revision; give a branch, a tag or a commit"):
        get(revision=revision)
    assert hub.requests == []


@pytest.mark.parametrize("name", ["../../../stolen", "/tmp/stolen", "a/../../stolen", "a\\b"])
def test_file_name_outside_of_the_snapshot_is_refused(
    hub: Hub, get: Fetch, tmp_path: Path, name: str
) -> None:
    hub.add(REPO, {**FILES, name: b"content"})
    with pytest.raises(VerificationError, match="which is outside of its directory"):
        get(select=lambda names: [name])
    assert hub.sent(name) == 0
    assert not list(tmp_path.rglob("*stolen*"))


def test_import_does_not_import_huggingface_hub() -> None:
    check = (
        "import sys, zoo.hub, zoo.hub.lockfile; print(sorted({'huggingface_hub','httpx2','rich',"
    )
    check += "'blake3','numpy','torch'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
