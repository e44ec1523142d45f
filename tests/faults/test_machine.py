"""Failures of the machine: full and read-only disks, little memory, and a wrong clock."""

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests import warm
from tests.checkpoints import Make
from tests.data.making import paragraphs
from tests.disks import small_disk
from tests.faults.making import DISKS, INCOMPLETE, MESSAGES
from tests.hub.hub_server import Hub
from tests.processes import run_limited
from tests.reporting import record
from tests.training.runs import options

__all__ = ["small_disk"]
GB = 1_000_000_000


@dataclass(frozen=True)
class Inputs:
    """Inputs of commands, on a working disk."""

    source: Path
    model: Path
    texts: Path


@pytest.fixture
def inputs(tmp_path: Path, hub_checkpoint: Make) -> Inputs:
    source = hub_checkpoint("BertModel")
    model, texts = tmp_path / "model", tmp_path / "a.txt"
    done = warm.zoo("convert", source, "-o", model)
    assert done.returncode == 0, done.stderr
    texts.write_text("\n\n".join(paragraphs() * 20))
    return Inputs(source, model, texts)


Words = Callable[[Inputs, Path], tuple[object, ...]]
QUICK: dict[str, Words] = {
    "convert": lambda i, disk: ("convert", i.source, "-o", disk / "out"),
    "convert --to hub": lambda i, disk: ("convert", i.model, "--to", "hub", "-o", disk / "out"),
    "corpus build": lambda i, disk: (
        *("corpus", "build", i.texts, "-o", disk / "out", "--tokenizer", i.model),
    ),
    "run, which converts": lambda i, disk: ("run", "embed", i.source, "a b"),
    "fetch": lambda i, disk: ("fetch", "org/name"),
    "fetch with a lock": lambda i, disk: ("fetch", "org/name", "--lock", disk / "zoo.lock"),
}
SLOW: dict[str, Words] = {
    "export": lambda i, disk: ("export", i.model, "--onnx", "-o", disk / "out"),
    "run, which exports": lambda i, disk: ("run", "embed", i.model, "a b", "--backend", "onnx"),
    "pretrain": lambda i, disk: (
        *("pretrain", "bert", *options(data=None), "--train", i.texts, "-o", disk / "run"),
    ),
}
EVERY = QUICK | SLOW
"""Commands that write; what is not given as an output goes to a home on the same disk."""


@pytest.fixture
def repository(hub: Hub, inputs: Inputs) -> None:
    hub.add("org/name", {path.name: path.read_bytes() for path in inputs.source.iterdir()})


@pytest.mark.by_default("corpus build-read-only", "fetch-full-disk")
@pytest.mark.usefixtures("repository")
@pytest.mark.parametrize("state", DISKS)
@pytest.mark.parametrize(
    "name", [*QUICK, *(pytest.param(name, marks=pytest.mark.long) for name in SLOW)]
)
def test_a_disk_that_cannot_be_written(
    inputs: Inputs, small_disk: Path, state: str, name: str
) -> None:
    DISKS[state](small_disk)
    done = warm.zoo(
        *EVERY[name](inputs, small_disk),
        ZOO_HOME=str(small_disk / "zoo-home"),
        HF_HOME=str(small_disk / "hf-home"),
    )
    left = [path for name in INCOMPLETE for path in small_disk.rglob(name)]
    clear = done.returncode == 2 and MESSAGES[state] in done.stderr.splitlines()[-1]
    record(state, cases=1, failures=int(not clear or bool(left)))
    assert clear, done.stderr
    assert "Traceback" not in done.stderr
    assert not left


COMMANDS: dict[str, tuple[str, ...]] = {
    "families": ("families",),
    "models": ("models",),
    "plugins": ("plugins",),
    "convert": ("convert", "source", "-o", "out"),
    "convert --dtype": ("convert", "source", "-o", "out", "--dtype", "float16"),
    "info": ("info", "model"),
    "corpus build": ("corpus", "build", "a.txt", "-o", "corpus", "--tokenizer", "model"),
}
WITH_TORCH: dict[str, tuple[str, ...]] = {
    "verify": ("verify", "model"),
    "doctor": ("doctor",),
    "plugins check": ("plugins", "check"),
    "run": ("run", "embed", "model", "a b"),
    "export": ("export", "model", "--onnx", "-o", "out"),
    "pretrain": ("pretrain", "bert", *options(data=None), "--train", "a.txt", "-o", "run"),
    "bench": ("bench", "model", "--seq-len", "16"),
}
"""Commands that import torch, which takes most of the address space: they may say so."""


@pytest.mark.long
@pytest.mark.usefixtures("inputs")
@pytest.mark.parametrize(
    "name", [*COMMANDS, *(pytest.param(name, marks=pytest.mark.long) for name in WITH_TORCH)]
)
def test_a_gigabyte_of_address_space(tmp_path: Path, name: str) -> None:
    words = (COMMANDS | WITH_TORCH)[name]
    done = run_limited(["zoo", *words], address_space=GB, seconds=500, cwd=tmp_path)
    last = (done.stderr.splitlines() or [""])[-1]
    lacks_memory = name in WITH_TORCH and done.returncode in (2, 3) and "memory" in last
    ends_right = done.returncode == 0 or lacks_memory
    peak = f"peak {done.peak_bytes / 1e6:.0f} MB" if done.returncode == 0 else "lacks memory"
    record("small-memory", cases=1, failures=int(not ends_right), measured=f"{name}: {peak}")
    assert ends_right, done.stderr
    assert "Traceback" not in done.stderr


JUMPS = """
import random, time
now, chance = time.time, random.Random(1)
time.time = lambda: now() + chance.uniform(-1e9, 1e9)
time.time_ns = lambda: int(time.time() * 1e9)
"""
RUN = """
from zoo.cli import main
for words in {commands!r}:
    try:
        main(words)
    except SystemExit as end:
        assert not end.code, words
"""
TIMED = ("performance.jsonl", "report.html", "run.json")  # files that record times


def written(folder: Path, program: str, home: Path) -> dict[str, bytes]:
    """Run commands in one process and a new directory; return all files that they write."""
    folder.mkdir()
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=folder,
        env={**os.environ, "ZOO_HOME": str(home)},
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    files = {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and path.name not in TIMED and not path.name.startswith("events.")
    }
    return {**files, "standard output": done.stdout}


@pytest.fixture(params=[0, 4_000_000_000], ids=["1970", "2096"])
def odd_times(request: pytest.FixtureRequest, inputs: Inputs) -> None:
    """Set the modification times of all inputs to the distant past or the future."""
    for path in (*inputs.source.iterdir(), *inputs.model.iterdir(), inputs.texts):
        os.utime(path, (request.param, request.param))


@pytest.mark.long
@pytest.mark.usefixtures("odd_times")
def test_a_clock_that_jumps(inputs: Inputs, tmp_path: Path) -> None:
    corpus = ["corpus", "build", str(inputs.texts), "-o", "corpus"]
    commands = [
        ["convert", str(inputs.source), "-o", "out"],
        ["run", "embed", str(inputs.source), "a b"],
        [*corpus, "--tokenizer", str(inputs.model)],
        ["pretrain", "bert", *options(data=None), "--train", str(inputs.texts), "-o", "run"],
        ["pretrain", "--resume", "run"],
    ]
    program = RUN.format(commands=commands)
    expected = written(tmp_path / "still", program, tmp_path / "still-home")
    jumping = written(tmp_path / "jumping", JUMPS + program, tmp_path / "jumping-home")
    different = [name for name in expected if jumping.get(name) != expected[name]]
    record("clock", cases=len(commands), failures=len(different))
    assert jumping.keys() == expected.keys()
    assert not different
