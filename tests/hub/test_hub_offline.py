from collections.abc import Callable, Sequence

import pytest

from tests.hub.conftest import FILES, NEEDED, REPO, WEIGHTS, Fetch
from tests.hub.hub_server import Hub
from zoo.errors import SourceError
from zoo.hub.reference import resolve
from zoo.hub.source import locate_or_download

GoOffline = Callable[[], bool]


@pytest.fixture(params=["argument", "environment"])
def offline(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> GoOffline:
    """Set offline mode by the variable or the argument; return the argument."""

    def go() -> bool:
        if request.param == "environment":
            monkeypatch.setenv("HF_HUB_OFFLINE", "1")
        return bool(request.param == "argument")

    return go


def test_fetched_files_are_found_offline(
    hub: Hub, commit: str, get: Fetch, monkeypatch: pytest.MonkeyPatch
) -> None:
    online = get()
    hub.requests.clear()
    for revision in (None, "main", commit):
        assert get(revision=revision, offline=True) == online
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert get() == online
    assert hub.requests == []


def test_empty_cache_offline(hub: Hub, commit: str, get: Fetch, offline: GoOffline) -> None:
    with pytest.raises(SourceError) as error:
        get(offline=offline())
    assert str(error.value) == (
        f"{REPO} main is not in the cache; run `zoo fetch {REPO}` once while online"
    )
    assert hub.requests == []


def test_other_revision_offline(hub: Hub, commit: str, get: Fetch) -> None:
    hub.add(REPO, FILES, branch="v2")
    get()
    for revision in ("v2", "0" * 40):
        with pytest.raises(SourceError, match=f"{REPO} {revision} is not in the cache"):
            get(revision=revision, offline=True)


def test_missing_file_offline(hub: Hub, commit: str, get: Fetch, offline: GoOffline) -> None:
    get(select=lambda names: ["config.json"])
    with pytest.raises(SourceError, match=f"^{REPO} vocab.txt is not in the cache; run"):
        get(offline=offline())
    assert hub.sent(WEIGHTS) == 0


def test_select_gets_the_recorded_names_offline(commit: str, get: Fetch) -> None:
    get()
    seen: list[str] = []

    def select(names: Sequence[str]) -> Sequence[str]:
        seen.extend(names)
        return ["config.json"]

    get(offline=True, select=select)
    assert seen == sorted(FILES)


def test_last_recorded_commit_is_used_offline(hub: Hub, commit: str, get: Fetch) -> None:
    get()
    newer = hub.add(REPO, {**FILES, "config.json": b"{}"})
    assert get(offline=True).revision == commit
    get()
    assert get(offline=True).revision == newer
    assert get(offline=True, revision=commit).files.keys() == set(NEEDED)


def test_a_model_of_the_registry_offline_has_other_ways(isolated: None) -> None:
    with pytest.raises(SourceError) as error:
        locate_or_download(resolve("bert-base-uncased"), offline=True)
    assert str(error.value) == (
        "google-bert/bert-base-uncased main is not in the cache; "
        "run `zoo fetch google-bert/bert-base-uncased` once while online, set $HF_ENDPOINT to a "
        "mirror, or give the directory of a checkpoint; `zoo pretrain bert` trains a model of "
        "this family"
    )


def test_without_a_network_there_are_other_ways(
    isolated: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(SourceError, match=r"^cannot connect to 127\.0\.0\.1:9 .*HF_ENDPOINT"):
        locate_or_download(resolve(REPO))
