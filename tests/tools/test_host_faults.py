"""Two hosts in network namespaces, and what a process learns of one on the other host."""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.interfaces import ROOT
from tools.host_faults import ADDRESSES, Hosts

LISTEN = """
import sys, time
from zoo.training.distributed.process_state import LivenessPort
port = LivenessPort("hostb")
print(port.address, port.port, file=sys.stderr, flush=True)
time.sleep(600)
"""
PROBE = """
import socket, sys
from zoo.training.distributed.process_state import probe
result = probe(sys.argv[1], int(sys.argv[2]))
print(socket.gethostname(), result, file=sys.stderr, flush=True)
"""


def can_make_namespaces() -> bool:
    if sys.platform != "linux" or os.geteuid() != 0 or shutil.which("ip") is None:
        return False
    done = subprocess.run(["unshare", "--net", "--uts", "true"], capture_output=True, check=False)
    return done.returncode == 0


pytestmark = pytest.mark.skipif(
    not can_make_namespaces(), reason="network namespaces need root and `ip`"
)


@pytest.fixture
def hosts() -> Iterator[Hosts]:
    with Hosts() as pair:
        yield pair


def wait_for_line(log: Path) -> str:
    until = time.monotonic() + 60
    while not (log.exists() and log.read_text().endswith("\n")):
        assert time.monotonic() < until
        time.sleep(0.02)
    return log.read_text()


def test_a_lost_machine_is_told_from_an_ended_process(hosts: Hosts, tmp_path: Path) -> None:
    listener = hosts.start("hosta", [sys.executable, "-c", LISTEN], tmp_path / "port", {})
    address, port = wait_for_line(tmp_path / "port").split()
    assert address == ADDRESSES["hosta"]

    def probe() -> str:
        log = tmp_path / "probe"
        log.unlink(missing_ok=True)
        words = [sys.executable, "-c", PROBE, address, port]
        assert hosts.start("hostb", words, log, {}).wait() == 0
        host, result = log.read_text().split()
        assert host == "hostb"
        return result

    assert probe() == "exists"
    hosts.set_cable(plugged=False)
    assert probe() == "unreachable"
    hosts.set_cable(plugged=True)
    assert probe() == "exists"
    hosts.kill("hosta")
    listener.wait()
    assert probe() == "ended"


@pytest.mark.long
def test_a_killed_process_leaves_the_bytes_as_they_are() -> None:
    words = ["-m", "tools.host_faults", "--fault", "process killed", "--moments", "1"]
    done = subprocess.run(
        [sys.executable, *words], capture_output=True, text=True, cwd=ROOT, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert "the same bytes" in done.stdout
    assert "process 1 on hostb has ended" in done.stdout
