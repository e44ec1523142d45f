import os
import socket
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.conftest import reload_hub_settings
from tests.hub.conftest import ETAGS, FILES, REPO, WEIGHTS, Fetch, partial
from tests.hub.hub_server import LISTING, Fault, Hub
from zoo.errors import SourceError, VerificationError
from zoo.io import retries

pytestmark = pytest.mark.usefixtures("hasty")
SIZE = len(FILES[WEIGHTS])
SHA256 = ETAGS[WEIGHTS]


def cached(pattern: str) -> list[Path]:
    return list(Path(os.environ["HF_HOME"], "hub").rglob(pattern))


def test_cut_connection_is_resumed(hub: Hub, commit: str, get: Fetch) -> None:
    hub.fail(WEIGHTS, Fault(cut_after=5000), Fault(cut_after=0), Fault(cut_after=700))
    fetched = get()
    assert (fetched.directory / WEIGHTS).read_bytes() == FILES[WEIGHTS]
    assert fetched.files[WEIGHTS].sha256 == SHA256
    assert hub.requested(WEIGHTS) == [0, 5000, 5000, 5700]
    assert hub.sent(WEIGHTS) == SIZE  # no byte is sent twice
    assert cached("*.incomplete") == [] and not partial().exists()


def test_retries_continue_while_there_is_progress(hub: Hub, commit: str, get: Fetch) -> None:
    cuts = 3 * retries.MAX_FAILURES
    hub.fail(WEIGHTS, *[Fault(cut_after=1000)] * cuts)
    assert get().files[WEIGHTS].sha256 == SHA256
    assert hub.requested(WEIGHTS) == [1000 * i for i in range(cuts + 1)]


def test_partial_file_is_kept_for_the_next_run(hub: Hub, commit: str, get: Fetch) -> None:
    hub.fail(WEIGHTS, Fault(cut_after=6000), *[Fault(cut_after=0)] * retries.MAX_FAILURES)
    with pytest.raises(SourceError) as error:
        get()
    host = hub.storage.removeprefix("http://")
    assert str(error.value) == (
        f"the connection to {host} was cut while reading {REPO} {WEIGHTS}; "
        "try again: the download is resumed"
    )
    assert partial().read_bytes() == FILES[WEIGHTS][:6000]
    assert not cached(SHA256) and not cached(WEIGHTS)
    hub.faults.clear()
    hub.requests.clear()
    fetched = get()
    assert fetched.files[WEIGHTS].sha256 == SHA256
    assert hub.requested(WEIGHTS) == [6000]
    assert hub.sent(WEIGHTS) == SIZE - 6000


def test_a_hub_that_ignores_ranges_is_read_from_the_start(
    hub: Hub, commit: str, get: Fetch
) -> None:
    hub.fail(WEIGHTS, Fault(cut_after=6000), Fault(no_ranges=True))
    assert get().files[WEIGHTS].sha256 == SHA256
    assert hub.sent(WEIGHTS) == 6000 + SIZE


def test_wrong_range_is_not_used(hub: Hub, commit: str, get: Fetch) -> None:
    hub.fail(WEIGHTS, Fault(cut_after=6000), Fault(wrong_range=True))
    assert get().files[WEIGHTS].sha256 == SHA256
    assert hub.requested(WEIGHTS) == [0, 6001, 0]


def test_stated_length_above_actual_length(hub: Hub, commit: str, get: Fetch) -> None:
    hub.sizes[WEIGHTS] = SIZE + 100
    partial(WEIGHTS, FILES[WEIGHTS])
    with pytest.raises(VerificationError, match=f"have {SIZE + 100} bytes, and the Hub sends"):
        get()
    assert hub.requested(WEIGHTS) == [SIZE, 0]  # nothing to resume, so from the start


def test_truncated_response_without_length_is_resumed(hub: Hub, commit: str, get: Fetch) -> None:
    hub.fail(WEIGHTS, Fault(cut_after=6000, no_length=True))
    assert get().files[WEIGHTS].sha256 == SHA256
    assert hub.requested(WEIGHTS) == [0, 6000]


@pytest.mark.parametrize("left", [SIZE + 10, SIZE, SIZE - 10])
def test_invalid_partial_file_is_discarded(hub: Hub, commit: str, get: Fetch, left: int) -> None:
    partial(WEIGHTS, bytes(left))
    assert get().files[WEIGHTS].sha256 == SHA256


@pytest.mark.by_default("503-config.json", "500-model.safetensors")
@pytest.mark.parametrize("what", [LISTING, "config.json", WEIGHTS])
@pytest.mark.parametrize("status", [500, 503, 408])
def test_transient_server_error(hub: Hub, commit: str, get: Fetch, what: str, status: int) -> None:
    hub.fail(what, *[Fault(status=status)] * (retries.MAX_FAILURES - 1))
    assert get().revision == commit
    assert len(hub.requested(what)) == retries.MAX_FAILURES + (what == LISTING)


def test_a_connection_that_is_dropped_when_the_revision_is_recorded(
    hub: Hub, commit: str, get: Fetch
) -> None:
    hub.fail(LISTING, Fault(), Fault(drop=True))
    assert get().revision == commit
    assert len(hub.requested(LISTING)) == 3


@pytest.mark.parametrize(("what", "label"), [(LISTING, REPO), (WEIGHTS, f"{REPO} {WEIGHTS}")])
def test_permanent_server_error_is_one_line(
    hub: Hub, commit: str, get: Fetch, what: str, label: str
) -> None:
    hub.fail(what, *[Fault(status=500)] * 20)
    with pytest.raises(SourceError) as error:
        get()
    assert str(error.value) == f"{hub.url} answered 500 when asked for {label}; try again later"
    assert len(hub.requested(what)) == retries.MAX_FAILURES


@pytest.mark.parametrize("what", [LISTING, pytest.param(WEIGHTS, marks=pytest.mark.long)])
def test_retry_after_is_respected(hub: Hub, commit: str, get: Fetch, what: str) -> None:
    hub.fail(what, Fault(status=429, headers={"Retry-After": "1"}))
    begin = time.monotonic()
    assert get().revision == commit
    assert 1.0 <= time.monotonic() - begin < 30
    assert len(hub.requested(what)) == 2 + (what == LISTING)


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pauses before requests are repeated, which are left out."""
    lengths: list[float] = []
    monkeypatch.setattr(retries, "time", SimpleNamespace(sleep=lengths.append))
    return lengths


def test_rate_limit_header(hub: Hub, commit: str, get: Fetch, pauses: list[float]) -> None:
    hub.fail(LISTING, Fault(status=429, headers={"RateLimit": '"api";r=0;t=1'}))
    assert get().revision == commit
    assert pauses == [1.0]


@pytest.mark.parametrize("value", ["3600", "Fri, 01 Jan 2100 00:00:00 GMT"])
def test_maximum_wait_is_a_minute(hub: Hub, commit: str, get: Fetch, value: str) -> None:
    hub.fail(WEIGHTS, Fault(status=429, headers={"Retry-After": value}))
    begin = time.monotonic()
    with pytest.raises(SourceError, match=r"429 .* too many requests; try again in \d{4,} s"):
        get()
    assert time.monotonic() - begin < 30


def test_waits_are_limited_in_total(
    hub: Hub, commit: str, get: Fetch, monkeypatch: pytest.MonkeyPatch, pauses: list[float]
) -> None:
    monkeypatch.setattr(retries, "MAX_RETRY_AFTER", 1.5)
    hub.fail(WEIGHTS, *[Fault(status=429, headers={"Retry-After": "1"})] * 3)
    with pytest.raises(SourceError, match="try again in 1 s"):
        get()
    assert len(hub.requested(WEIGHTS)) == 2
    assert pauses == [1.0]


@pytest.mark.parametrize("length", [100, SIZE - 1, SIZE + 1])
def test_wrong_length_is_refused_before_download(
    hub: Hub, commit: str, get: Fetch, length: int
) -> None:
    hub.fail(WEIGHTS, Fault(length=length))
    with pytest.raises(VerificationError) as error:
        get()
    assert str(error.value) == (
        f"{REPO} {WEIGHTS} should have {SIZE} bytes, and the Hub sends {length}; "
        "try again; if it persists, do not use it"
    )
    assert not cached(SHA256) and not cached(WEIGHTS)
    assert get().files[WEIGHTS].sha256 == SHA256


@pytest.mark.parametrize("name", [WEIGHTS, "config.json"])
def test_compressed_response(hub: Hub, commit: str, get: Fetch, name: str) -> None:
    hub.fail(name, Fault(compressed=True))
    assert (get().directory / name).read_bytes() == FILES[name]
    assert hub.requested(name) == [0]


def test_response_longer_than_stated(hub: Hub, commit: str, get: Fetch) -> None:
    hub.fail(WEIGHTS, Fault(length=SIZE + 1, no_length=True))
    with pytest.raises(VerificationError, match=f"should have {SIZE} bytes"):
        get()
    assert not cached(SHA256) and not cached(WEIGHTS) and not partial().exists()


@pytest.mark.parametrize("name", [WEIGHTS, "config.json"])
def test_wrong_digest_never_enters_the_cache(hub: Hub, commit: str, get: Fetch, name: str) -> None:
    hub.fail(name, *[Fault(corrupt=True)] * retries.MAX_FAILURES)
    with pytest.raises(VerificationError) as error:
        get()
    assert str(error.value).startswith(f"{REPO} {name} does not match the digest that the Hub")
    assert error.value.exit_code == 3
    assert (
        not cached(name)
        and not cached(ETAGS[name])
        and not cached("*.incomplete")
        and not partial(name).exists()
    )
    fetched = get()
    assert (fetched.directory / name).read_bytes() == FILES[name]


def test_wrong_digest_is_downloaded_again(hub: Hub, commit: str, get: Fetch) -> None:
    hub.fail(WEIGHTS, Fault(corrupt=True))
    assert get().files[WEIGHTS].sha256 == SHA256
    assert hub.requested(WEIGHTS) == [0, 0]


def test_timeout(hub: Hub, commit: str, get: Fetch, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_DOWNLOAD_TIMEOUT", "1")
    monkeypatch.setattr(retries, "MAX_FAILURES", 1)
    reload_hub_settings()
    hub.fail(WEIGHTS, Fault(stall_after=4000))
    with pytest.raises(SourceError) as error:
        get()
    host = hub.storage.removeprefix("http://")
    assert str(error.value) == (
        f"{host} stopped answering when asked for {REPO} {WEIGHTS}; try again later"
    )
    assert get().files[WEIGHTS].sha256 == SHA256
    assert hub.requested(WEIGHTS) == [0, 4000]


def test_refused_connection_fails_at_once(get: Fetch, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        host = f"127.0.0.1:{free.getsockname()[1]}"  # bound, but not listening
        monkeypatch.setenv("HF_ENDPOINT", f"http://{host}")
        monkeypatch.setattr(retries, "INITIAL_DELAY", 60)
        reload_hub_settings()
        with pytest.raises(SourceError) as error:
            get()
    assert str(error.value) == (
        f"cannot connect to {host} for {REPO}: [Errno 111] Connection refused; "
        "check the network, or give --offline"
    )


@pytest.mark.parametrize(
    "body",
    [b"<html>please log in</html>", b"[]", b"{}", b'{"id": "x", "sha": "../x", "siblings": []}'],
)
def test_server_that_is_no_hub(hub: Hub, commit: str, get: Fetch, body: bytes) -> None:
    hub.fail(LISTING, Fault(body=body))
    with pytest.raises(SourceError) as error:
        get()
    assert str(error.value).startswith(f"{hub.url} does not respond as a Hub does: ")
    assert str(error.value).endswith("; check $HF_ENDPOINT")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("endpoint", ["ftp://example.org", "http://127.0.0.1:many"])
def test_malformed_endpoint(get: Fetch, monkeypatch: pytest.MonkeyPatch, endpoint: str) -> None:
    monkeypatch.setenv("HF_ENDPOINT", endpoint)
    reload_hub_settings()
    with pytest.raises(SourceError, match=r"^cannot ask "):
        get()
