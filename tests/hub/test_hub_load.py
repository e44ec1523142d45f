"""Concurrent clients of a Hub with faults in a fifth of the responses."""

import os
import random
import subprocess
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.checkpoints import Make
from tests.conftest import reload_hub_settings
from tests.hub.conftest import REPO, Fetch
from tests.hub.hub_server import Fault, Hub
from zoo.io import retries

SHARE = 0.2


class Chaos:
    """Random faults, in a fifth of the responses."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.drawn: Counter[str] = Counter()

    def __call__(self, method: str, size: int) -> Fault:
        if self.random.random() >= SHARE:
            return Fault()
        kinds = {
            "error": Fault(status=500),
            "reset": Fault(drop=True),
            "short": Fault(cut_after=size // 2),
            "digest": Fault(corrupt=True),
            "stall": Fault(stall_after=size // 3),
        }
        names = ["error", "reset"] if method == "HEAD" or not size else list(kinds)
        name = self.random.choice(names)
        self.drawn[name] += 1
        return kinds[name]


@pytest.fixture
def chaos(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> Chaos:
    monkeypatch.setenv("HF_HUB_DOWNLOAD_TIMEOUT", "2")
    reload_hub_settings()
    hub.chaos = Chaos(seed=1)
    return hub.chaos


def assert_sent_once(hub: Hub, names: list[str]) -> None:
    """Check that each file was sent completely once."""
    ends = Counter(r.what for r in hub.requests if r.method == "GET" and r.complete)
    assert {name: ends[name] for name in names} == dict.fromkeys(names, len(hub.repos))


@pytest.mark.usefixtures("hasty")
def test_concurrent_threads(
    hub: Hub, get: Fetch, chaos: Chaos, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = {f"{number}.bin": bytes([number]) * 5000 for number in range(16)}
    hub.add(REPO, files)
    monkeypatch.setattr(retries, "MAX_FAILURES", 10)  # four faults in a row are possible
    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(lambda _: get(select=list), range(24)))
    assert [result for result in results if result != results[0]] == []
    for name, content in files.items():
        assert (results[0].directory / name).read_bytes() == content
    assert_sent_once(hub, list(files))
    assert chaos.drawn.total() > 6


@pytest.mark.promise("hub-load", cases=50)
@pytest.mark.long
def test_fifty_concurrent_conversions(
    hub: Hub, chaos: Chaos, hub_checkpoint: Make, tmp_path: Path
) -> None:
    files = {path.name: path.read_bytes() for path in hub_checkpoint("BertModel").iterdir()}
    repos = [f"someone/tiny-{number}" for number in range(10)]
    for repo in repos:
        hub.add(repo, files)
    running = [
        subprocess.Popen(
            [
                sys.executable,
                "-c",
                CONVERT,
                repo,
                "-o",
                str(tmp_path / "made" / f"{copy}-{repo[8:]}"),
            ],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "HF_HUB_DOWNLOAD_TIMEOUT": "10"},
        )
        for copy in range(5)
        for repo in repos
    ]
    errors = [process.communicate(timeout=900)[1] for process in running]
    assert Counter(errors) == {"": 50}
    weights = [path.read_bytes() for path in (tmp_path / "made").rglob("model.safetensors")]
    assert len(weights) == 50 and len(set(weights)) == 1
    assert_sent_once(hub, [name for name, content in files.items() if content])
    assert chaos.drawn.total() > 12 and {"short", "digest", "stall"} & set(chaos.drawn)
    assert not list((tmp_path / "hf-home").rglob("*.incomplete"))
    assert not list((tmp_path / "zoo-home").rglob("*.partial"))


# More retries than by default: of 50 processes, some meet four faults in a row.
CONVERT = """
import sys
from zoo.cli import main
from zoo.io import retries
retries.MAX_FAILURES = 10
main(["convert", *sys.argv[1:]])
"""
