"""The access token appears in no message, traceback, file, or request to another host."""

import json
import os
import traceback
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from tests.conftest import reload_hub_settings
from tests.hub.conftest import ETAGS, FILES, REPO, Fetch
from tests.hub.hostile_server import (
    COMMIT,
    Answer,
    ReceivedRequest,
    Reply,
    Server,
    file_entry,
    listing,
)
from tests.processes import run_limited
from zoo.errors import ZooError
from zoo.hub.lockfile import Lock

pytestmark = pytest.mark.usefixtures("hasty")
CANARY = "hf_CanaryInAMine0123456789"
NAME = "config.json"
ENTRY = file_entry(NAME, ETAGS[NAME], len(FILES[NAME]))
HEAD = {"ETag": f'"{ETAGS[NAME]}"', "X-Repo-Commit": COMMIT}

LISTINGS: Mapping[str, Callable[[str], Answer]] = {
    "body of an error": lambda token: Answer(401, json.dumps({"error": token}).encode()),
    "several errors": lambda token: Answer(
        400, json.dumps({"errors": [{"message": f"\n{token}\n"}]}).encode()
    ),
    "text of an error": lambda token: Answer(404, token.encode(), {"Content-Type": "text/plain"}),
    "header of an error": lambda token: Answer(403, headers={"X-Error-Message": token}),
    "code of an error": lambda token: Answer(403, headers={"X-Error-Code": token}),
    "reason": lambda token: Answer(500, reason=token),
    "rate limit": lambda token: Answer(429, headers={"RateLimit": token, "Retry-After": token}),
    "warning": lambda token: Answer(404, headers={"X-HF-Warning": f"a; {token}"}),
    "commit": lambda token: listing(sha=token),
    "name of a file": lambda token: listing(ENTRY, file_entry(f"{token}.bin", "0" * 40, 0)),
    "digest": lambda token: listing(file_entry(NAME, token, 1)),
    "no list": lambda token: Answer(body=token.encode()),
    "path of a redirection": lambda token: Answer(302, headers={"Location": f"http://[{token}"}),
    "host of a redirection": lambda token: Answer(
        302, headers={"Location": f"http://{token}:0/x?{token}"}
    ),
    "scheme of a redirection": lambda token: Answer(302, headers={"Location": f"{token}://x"}),
}
FILES_OF: Mapping[str, Callable[[str], Answer]] = {
    "body of an error": lambda token: Answer(403, json.dumps({"error": token}).encode()),
    "headers": lambda token: Answer(
        body=b"other" * 4 + b"...", headers={"ETag": token, "X-Repo-Commit": token}
    ),
    "redirection": lambda token: Answer(302, headers={**HEAD, "Location": f"http://[{token}"}),
    "part": lambda token: Answer(206, b"x", {**HEAD, "Content-Range": token}),
}


def echoing(make: Callable[[str], Answer], *, files: bool) -> Reply:
    def reply(request: ReceivedRequest) -> Answer:
        if files and request.is_listing:
            return listing(ENTRY)
        return make(request.headers.get("authorization", "").removeprefix("Bearer "))

    return reply


@pytest.fixture(params=[*LISTINGS, *(f"file: {name}" for name in FILES_OF)])
def echo(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """Return a server that repeats the token in one part of the response."""
    kind = str(request.param)
    files = kind.startswith("file: ")
    make = FILES_OF[kind.removeprefix("file: ")] if files else LISTINGS[kind]
    monkeypatch.setenv("HF_TOKEN", CANARY)
    with Server(echoing(make, files=files)) as server:
        monkeypatch.setenv("HF_ENDPOINT", server.url)
        reload_hub_settings()
        yield server


def has_canary(text: str | bytes) -> bool:
    lower = text.lower() if isinstance(text, bytes) else text.lower().encode()
    return CANARY.lower().encode() in lower


def check_files(folder: Path) -> None:
    for path in folder.rglob("*"):
        assert not has_canary(str(path))
        assert not (path.is_file() and has_canary(path.read_bytes())), path


@pytest.mark.promise("token")
def test_no_error_or_file_contains_the_token(
    echo: Server, get: Fetch, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(ZooError) as error:
        get(select=lambda names: [NAME], lock=Lock.open(tmp_path / "zoo.lock"))
    assert [r for r in echo.requests if has_canary(r.headers["authorization"])]
    assert not has_canary("".join(traceback.format_exception(error.value)))
    shown = capfd.readouterr()
    assert not has_canary(shown.out + shown.err)
    check_files(tmp_path)


@pytest.mark.promise("token", cases=3)
@pytest.mark.long
def test_no_command_prints_the_token(echo: Server, tmp_path: Path) -> None:
    repeat = echo.reply
    arguments: list[bytes] = []

    def reply(request: ReceivedRequest) -> Answer:
        for process in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                arguments.append(process.read_bytes())
            except OSError:
                continue
        return repeat(request)

    echo.reply = reply
    for command in ("fetch", "info", "convert"):
        words = ["zoo", command, REPO, "--lock", tmp_path / "zoo.lock", "--json"]
        done = run_limited(words, cwd=tmp_path, ZOO_DEBUG="1", HF_TOKEN=CANARY)
        assert done.returncode != 0
        assert not has_canary(done.stdout + done.stderr)
    assert arguments
    assert [argument for argument in arguments if has_canary(argument)] == []
    check_files(tmp_path)


def test_traceback_does_not_contain_the_token(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Server(echoing(LISTINGS["header of an error"], files=False)) as server:
        done = run_limited(
            ["zoo", "fetch", REPO], HF_ENDPOINT=server.url, HF_TOKEN=CANARY, ZOO_DEBUG="1"
        )
    assert done.returncode == 1 and "Traceback" in done.stderr  # the effect of ZOO_DEBUG=1
    assert "***" in done.stderr
    assert not has_canary(done.stdout + done.stderr)


@pytest.mark.promise("token")
@pytest.mark.parametrize("part", ["list", "HEAD", "GET"])
def test_token_is_not_sent_to_another_host(
    get: Fetch, monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    monkeypatch.setenv("HF_TOKEN", CANARY)

    def answer(request: ReceivedRequest) -> Answer:
        return listing(ENTRY) if request.is_listing else Answer(body=FILES[NAME], headers=HEAD)

    with Server(answer) as other:

        def redirect(request: ReceivedRequest) -> Answer:
            stage = "list" if request.is_listing else request.method
            if stage == part:
                location = f"{other.url}{request.path}"
                return Answer(307, headers={**HEAD, "Location": location})
            return answer(request)

        with Server(redirect) as server:
            monkeypatch.setenv("HF_ENDPOINT", server.url)
            reload_hub_settings()
            result = get(select=lambda names: [NAME])
    assert (result.directory / NAME).read_bytes() == FILES[NAME]
    assert server.requests
    assert [request for request in server.requests if "authorization" not in request.headers] == []
    assert other.requests
    assert [request for request in other.requests if has_canary(str(request))] == []
    assert os.environ["HF_TOKEN"] == CANARY
