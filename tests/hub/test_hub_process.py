"""Downloads in a subprocess: forbidden sockets, kills, a terminal, a full disk."""

import os
import pty
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.hub.conftest import FILES, NEEDED, REPO, WEIGHTS, Fetch
from tests.hub.hub_server import Fault, Hub

SIZE = len(FILES[WEIGHTS])
FETCH = """
from zoo.errors import ZooError
from zoo.hub import fetch
def needed(names):
    return [name for name in {needed} if name in names]
try:
    print(fetch({repo!r}, select=needed, offline={offline}).revision)
except ZooError as error:
    raise SystemExit(f"{{error.exit_code}}: {{error}}")
"""
FORBID = """
import sys
def forbid(event, arguments):
    if event.startswith("socket."):
        raise PermissionError(f"no {event} here")
sys.addaudithook(forbid)
"""
ROOT = Path(__file__).parents[2]


def script(before: str = "", *, offline: bool = False) -> list[str]:
    code = FETCH.format(needed=NEEDED, repo=REPO, offline=offline)
    return [sys.executable, "-c", before + code]


def run(command: list[str], **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        env={**os.environ, **environment},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
    )


@pytest.mark.by_default("argument")
@pytest.mark.parametrize("how", ["argument", "environment"])
def test_offline_creates_no_socket(commit: str, get: Fetch, how: str) -> None:
    get()
    variables = {"HF_HUB_OFFLINE": "1"} if how == "environment" else {}
    done = run(script(FORBID, offline=how == "argument"), **variables)
    assert (done.stdout, done.stderr, done.returncode) == (f"{commit}\n", "", 0)


def test_online_creates_a_socket(commit: str, get: Fetch) -> None:
    get()
    done = run(script(FORBID))
    assert done.returncode != 0
    assert "no socket." in done.stderr


def test_download_of_killed_process_is_resumed(hub: Hub, commit: str) -> None:
    arrived = 2 << 20
    content = bytes(arrived + 5000)
    commit = hub.add("someone/tiny", {**FILES, WEIGHTS: content})
    hub.fail(WEIGHTS, Fault(stall_after=arrived))
    process = subprocess.Popen(script(), cwd=ROOT)
    part = _wait_for_part(1 << 20)
    process.send_signal(signal.SIGKILL)
    assert process.wait(10) == -signal.SIGKILL
    size = part.stat().st_size
    hub.requests.clear()
    done = run(script())
    assert (done.stdout, done.stderr) == (f"{commit}\n", "")
    assert hub.requested(WEIGHTS) == [size]
    assert hub.sent(WEIGHTS) == len(content) - size
    assert not part.exists()


def _wait_for_part(size: int) -> Path:
    for _ in range(2000):
        for part in Path(os.environ["ZOO_HOME"]).rglob("*.partial"):
            if part.stat().st_size >= size:
                return part
        time.sleep(0.01)
    raise AssertionError("nothing was downloaded")


@pytest.mark.long
def test_silent_without_terminal(hub: Hub, commit: str) -> None:
    hub.fail(WEIGHTS, Fault(cut_after=100))
    done = run(script())
    assert (done.stdout, done.stderr, done.returncode) == (f"{commit}\n", "", 0)


def test_progress_bar_on_terminal(hub: Hub, commit: str) -> None:
    outer, inner = pty.openpty()
    done = subprocess.run(
        script("import zoo.io.progress\nzoo.io.progress.DELAY_SECONDS = 0\n"),
        cwd=ROOT,
        env={**os.environ, "TERM": "xterm", "COLUMNS": "100"},
        stdout=subprocess.PIPE,
        stderr=inner,
        timeout=60,
    )
    os.close(inner)
    shown = os.read(outer, 1 << 16).decode()
    os.close(outer)
    assert done.stdout.decode() == f"{commit}\n"
    assert "fetching someone/tiny" in shown
    assert "kB" in shown
    assert "loopback" not in shown  # the Hub's warning header


@pytest.mark.long
def test_full_disk_is_one_line_and_keeps_partial_file(hub: Hub, commit: str) -> None:
    limit = "import resource, signal\nsignal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
    limit += "resource.setrlimit(resource.RLIMIT_FSIZE, (8000, 8000))\n"
    done = run(script(limit), PYTHONDONTWRITEBYTECODE="1")
    assert done.returncode == 1
    assert done.stderr.startswith("2: cannot write ")
    assert done.stderr.endswith(
        ": File too large; make room, or set $HF_HUB_CACHE and $ZOO_HOME to another place\n"
    )
    assert done.stderr.count("\n") == 1
    assert run(script()).stdout == f"{commit}\n"
    assert hub.requested(WEIGHTS) == [0, 8000]
