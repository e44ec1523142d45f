"""Runs that are over in a second: what tests of the engine share."""

import filecmp
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tests import warm
from zoo.training.ranks import Ranks
from zoo.training.settings import Settings, gather
from zoo.training.start import begin
from zoo.training.state import Tensors, checkpoints, load_tensors, read_state
from zoo.training.trees import merged

SMALL: Mapping[str, Any] = {
    "vocab_size": 400,
    "length": 64,
    "batch_tokens": 256,
    "micro_tokens": 128,
    "steps": 12,
    "log_every": 1,
    "validate_every": 4,
    "validation_rows": 4,
    "save_every": 3,
    "schedule": {"warmup": 2},
}
NO_DROPOUT = {"dropout": 0.0, "attention_dropout": 0.0}


def small(family: str, **changes: Any) -> Settings:
    return gather({"family": family}, merged(SMALL, changes))


def tree(family: str, **changes: Any) -> dict[str, Any]:
    return {"family": family, **merged(SMALL, changes)}


def train(path: Path, family: str, **changes: Any) -> Path:
    begin(tree(family, **changes), {}, path, Ranks.join("cpu"))
    return path


def options(**changes: Any) -> list[str]:
    """The small settings as options of the command line."""
    return [f"--set={name}={json.dumps(value)}" for name, value in merged(SMALL, changes).items()]


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "zoo", "pretrain", "--device", "cpu", *arguments]


def start(*arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        command(*arguments),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )


def finish(*arguments: str) -> subprocess.CompletedProcess[str]:
    return warm.zoo("pretrain", "--device", "cpu", *arguments)


def wait_until(condition: Callable[[], bool], process: "subprocess.Popen[str]") -> None:
    """Wait for something that a process does while it is alive."""
    until = time.monotonic() + 90
    while not condition():
        assert process.poll() is None, process.communicate()[1]
        assert time.monotonic() < until, "it took too long"
        time.sleep(0.005)


def lines(run: Path) -> int:
    log = run / "log.jsonl"
    return log.read_bytes().count(b"\n") if log.exists() else 0


def records(run: Path, split: str = "train") -> list[dict[str, Any]]:
    found = [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]
    return [record for record in found if record["split"] == split]


def tensors(checkpoint: Path) -> dict[str, Tensors]:
    """The tensors of a checkpoint, by file stem."""
    settings = json.loads((checkpoint / "state.json").read_bytes())["settings"]
    return load_tensors(checkpoint, read_state(checkpoint, steps=1 << 40, settings=settings))


def flip(path: Path, place: int = -1, bit: int = 0) -> None:
    """Flip a bit of a file."""
    content = bytearray(path.read_bytes())
    content[place] ^= 1 << bit
    path.write_bytes(content)


def assert_same(one: Path, other: Path) -> None:
    assert (one / "log.jsonl").read_bytes() == (other / "log.jsonl").read_bytes()
    last, twin = (list(checkpoints(run).values())[-1] for run in (one, other))
    names = sorted(path.name for path in last.iterdir())
    assert last.name == twin.name
    assert filecmp.cmpfiles(last, twin, names, shallow=False)[0] == names
    weights = Path("model", "model.safetensors")
    assert (one / weights).read_bytes() == (other / weights).read_bytes()


def cut(run: Path, step: int) -> None:
    """Take away what came after a checkpoint, as if the process had been killed before the next."""
    for after, path in checkpoints(run).items():
        if after > step:
            shutil.rmtree(path)
    shutil.rmtree(run / "model")
