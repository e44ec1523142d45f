"""Sources that change during conversion: an error of one line, and no output."""

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conversion.sparse import sparse_checkpoint
from zoo.conversion.convert import convert
from zoo.errors import VerificationError
from zoo.hub.source import CheckpointDir
from zoo.io.digests.background import BackgroundHasher


def shrink(path: Path) -> None:
    os.truncate(path, 1_000_000)


def overwrite(path: Path) -> None:
    with path.open("r+b") as file:
        file.seek(-4, os.SEEK_END)
        file.write(b"abcd")


@pytest.mark.by_default("shrink")
@pytest.mark.promise("changing-file")
@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("change", [shrink, overwrite])
def test_changing_source_is_one_line(
    tmp_path: Path, change: Callable[[Path], None], dtype: str
) -> None:
    source = tmp_path / "source"
    sparse_checkpoint(
        source, vocab_size=200_000, hidden_size=256, num_hidden_layers=1, intermediate_size=64
    )
    command = [sys.executable, "-m", "zoo", "convert", str(source), "-o", "out", "--dtype", dtype]
    running = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 60
    while not any(path.stat().st_size for path in tmp_path.glob(".out.*/model.safetensors")):
        assert running.poll() is None and time.monotonic() < deadline
        time.sleep(0.002)
    change(source / "model.safetensors")
    _, errors = running.communicate(timeout=120)
    assert running.returncode == 3, errors
    (line,) = [line for line in errors.splitlines() if line.startswith("error: ")]
    assert "model.safetensors was " in line
    assert [path.name for path in tmp_path.iterdir()] == ["source"]


@pytest.mark.promise("changing-file")
@pytest.mark.parametrize("name", ["config.json", "model.safetensors"])
def test_change_after_the_last_read_is_detected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    source = tmp_path / "source"
    sparse_checkpoint(
        source, vocab_size=90, hidden_size=32, num_hidden_layers=1, intermediate_size=64
    )
    wait = BackgroundHasher.wait_for_disk

    def change_then_wait(digests: BackgroundHasher) -> None:
        (source / name).write_bytes((source / name).read_bytes())
        wait(digests)

    monkeypatch.setattr(BackgroundHasher, "wait_for_disk", change_then_wait)
    with pytest.raises(VerificationError, match=f"{name} was changed while it was converted"):
        convert(CheckpointDir(source, "source"), tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["source"]
