"""The verbs that fine-tune, distil, evaluate, quantize and upload, on machines that fail."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests import warm
from tests.disks import small_disk
from tests.faults import newer
from tests.faults.making import DISKS, INCOMPLETE, MESSAGES
from tests.reporting import record

__all__ = ["small_disk"]
Words = Callable[[Path, Path], list[object]]
QUICK: dict[str, Words] = {
    "plugins disable": lambda i, disk: ["plugins", "disable", "bert"],
    "distill with a cache": lambda i, disk: [
        *newer.distill(i, disk / "cache"),
        *("-o", disk.parent / "run"),
    ],
}
SLOW: dict[str, Words] = {
    "finetune": lambda i, disk: [*newer.finetune(i), "-o", disk / "run"],
    "distill": lambda i, disk: [*newer.distill(i), "-o", disk / "run"],
    "export of int8": lambda i, disk: [*newer.export(i), "-o", disk / "out"],
    "cache of corpora": lambda i, disk: [*newer.pretrain(i), "-o", disk.parent / "run"],
}


@pytest.fixture
def inputs(tmp_path: Path) -> Path:
    return newer.newer_inputs(tmp_path / "inputs")


@pytest.mark.by_default("distill with a cache-full-disk", "plugins disable-read-only")
@pytest.mark.parametrize("state", DISKS)
@pytest.mark.parametrize(
    "name", [*QUICK, *(pytest.param(name, marks=pytest.mark.long) for name in SLOW)]
)
def test_a_disk_that_cannot_be_written(
    inputs: Path, small_disk: Path, state: str, name: str
) -> None:
    DISKS[state](small_disk)
    if state == "full-disk":  # not even a small file
        with (small_disk / "more").open("wb") as file:
            free = os.statvfs(small_disk)
            file.write(bytes(max(0, free.f_bavail * free.f_frsize)))
    done = warm.zoo(*(QUICK | SLOW)[name](inputs, small_disk), ZOO_HOME=str(small_disk / "home"))
    left = [path for pattern in INCOMPLETE for path in small_disk.rglob(pattern)]
    clear = done.returncode == 2 and MESSAGES[state] in done.stderr.splitlines()[-1]
    record(state, cases=1, failures=int(not clear or bool(left)))
    assert clear, done.stderr
    assert left == []


@pytest.mark.parametrize("state", DISKS)
def test_a_result_that_cannot_be_recorded_is_printed(
    inputs: Path, small_disk: Path, state: str
) -> None:
    model = small_disk / "model"
    shutil.copytree(inputs / "model", model)
    before = (model / "zoo.json").read_bytes()
    DISKS[state](small_disk)
    if state == "full-disk":
        with (small_disk / "more").open("wb") as file:
            free = os.statvfs(small_disk)
            file.write(bytes(max(0, free.f_bavail * free.f_frsize)))
    words = ["eval", model, *newer.TASK, "--eval", inputs / "table.jsonl", "--json"]
    done = warm.zoo(*words)
    kept = (model / "zoo.json").read_bytes() == before and not [*small_disk.rglob("*.zoo-*")]
    clear = done.returncode == 0 and MESSAGES[state] in done.stderr
    record(state, cases=1, failures=int(not (kept and clear)))
    assert clear, done.stderr
    assert json.loads(done.stdout)["metrics"]["samples"] == 40
    assert kept


VERBS: dict[str, tuple[Callable[[Path], list[object]], bool]] = {
    "push": (newer.push, False),
    "eval": (newer.evaluate, False),
    "plugins disable": (lambda folder: ["plugins", "disable", "bert"], False),
    "finetune": (newer.finetune, True),
    "distill": (lambda folder: newer.distill(folder, folder / "cache"), True),
    "export of int8": (newer.export, True),
    "pretrain": (newer.pretrain, True),
}
LONG = ("distill", "export of int8", "pretrain")


@pytest.mark.by_default("finetune", "push")
@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=[pytest.mark.long] if n in LONG else []) for n in VERBS],
)
def test_no_home_and_no_language(name: str, inputs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Python then takes the home directory from the password file, which is not used here."""
    words, writes = VERBS[name]
    monkeypatch.delenv("HOME")
    out = ["-o", inputs / "été"] if writes else []
    done = warm.zoo(*words(inputs), *out, LANG="C", LC_ALL="C", ZOO_HOME=str(inputs / "home"))
    ends_right = done.returncode == 0 and (inputs / "été").exists() == writes
    record("no-home", cases=1, failures=int(not ends_right))
    assert done.returncode == 0, done.stderr
    assert (inputs / "été").exists() == writes
