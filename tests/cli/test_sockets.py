"""No command opens a socket with local paths or with ``--offline``."""

import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from tests.checkpoints import Make
from tests.hub.conftest import FILES, REPO
from tests.hub.hub_server import Hub
from tests.processes import Limited, run_limited

FORBID = """
import os, sys
def forbid(event, arguments):
    if event in ("socket.__new__", "socket.connect", "socket.getaddrinfo", "socket.bind"):
        with open(os.environ["SOCKETS"], "a") as log:
            print(event, arguments[1:], sys.argv, file=log)
        raise PermissionError(event)
sys.addaudithook(forbid)
"""


def run_watched(tmp_path: Path, *words: object) -> Limited:
    """Run a command; Python sockets of it and its children are refused and recorded."""
    (tmp_path / "hook").mkdir(exist_ok=True)
    (tmp_path / "hook" / "sitecustomize.py").write_text(FORBID)
    return run_limited(
        ["zoo", *words],
        seconds=300,
        cwd=tmp_path,
        PYTHONPATH=str(tmp_path / "hook"),
        SOCKETS=str(tmp_path / "sockets"),
    )


def assert_no_socket(tmp_path: Path, *words: object) -> None:
    done = run_watched(tmp_path, *words)
    assert done.returncode == 0, done.stderr
    log = tmp_path / "sockets"
    assert not log.exists(), log.read_text()


def local_commands(source: Path, tmp_path: Path) -> list[Sequence[object]]:
    model, graph = tmp_path / "model", tmp_path / "graph"
    run = tmp_path / "run"
    return [
        ("convert", source, "-o", model),
        ("info", model),
        ("verify", model),
        ("run", "embed", model, "ab cd"),
        ("run", "embed", model, "ab cd", "--backend", "onnx"),
        ("export", model, "--onnx", "-o", graph),
        ("run", "embed", graph, "ab cd"),
        ("corpus", "build", Path(__file__), "--tokenizer", model, "-o", tmp_path / "corpus"),
        ("pretrain", "bert", "--max-steps", 2, "--device", "cpu", "-o", run),
        ("verify", run / "model"),
        ("plugins",),
        ("doctor",),
    ]


def fetch(hub: Hub, files: Mapping[str, bytes]) -> None:
    """Download a repository to the cache."""
    hub.add(REPO, files)
    assert run_limited(["zoo", "fetch", REPO]).returncode == 0
    hub.requests.clear()


@pytest.mark.long
@pytest.mark.promise("offline")
def test_fetch_opens_sockets_unless_it_is_offline(hub: Hub, tmp_path: Path) -> None:
    fetch(hub, FILES)
    assert_no_socket(tmp_path, "fetch", REPO, "--offline")
    assert hub.requests == []
    assert run_watched(tmp_path, "fetch", REPO).returncode != 0  # the check detects sockets
    assert "socket." in (tmp_path / "sockets").read_text()


@pytest.mark.promise("offline", cases=13)
@pytest.mark.long
def test_commands_on_local_paths(hub: Hub, hub_checkpoint: Make, tmp_path: Path) -> None:
    source = hub_checkpoint("BertModel")
    fetch(hub, {path.name: path.read_bytes() for path in source.iterdir()})
    assert_no_socket(tmp_path, "convert", REPO, "-o", tmp_path / "offline", "--offline")
    assert hub.requests == []
    for words in local_commands(source, tmp_path):
        assert_no_socket(tmp_path, *words)


def traced(tmp_path: Path, *words: object) -> list[str]:
    """Run a command under strace, and return its system calls that concern the Internet."""
    log = tmp_path / "trace"
    trace = ["strace", "-f", "--seccomp-bpf", "-e", "trace=network", "-o", str(log)]
    command = [*trace, sys.executable, "-m", "zoo"]
    done = subprocess.run(
        [*command, *map(str, words)], cwd=tmp_path, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    return [line for line in log.read_text().splitlines() if re.search(r"AF_INET6?\b", line)]


def can_trace() -> bool:
    program = shutil.which("strace")
    return bool(program and subprocess.run([program, "-o", "/dev/null", "true"]).returncode == 0)


@pytest.mark.promise("offline", cases=14)
@pytest.mark.long
@pytest.mark.skipif(not can_trace(), reason="strace is not installed, or may not trace here")
def test_system_calls(hub: Hub, hub_checkpoint: Make, tmp_path: Path) -> None:
    source = hub_checkpoint("BertModel")
    fetch(hub, {path.name: path.read_bytes() for path in source.iterdir()})
    assert traced(tmp_path, "fetch", REPO) != []  # the check detects sockets
    assert traced(tmp_path, "fetch", REPO, "--offline") == []
    assert traced(tmp_path, "convert", REPO, "-o", tmp_path / "offline", "--offline") == []
    for words in local_commands(source, tmp_path):
        assert traced(tmp_path, *words) == [], words
