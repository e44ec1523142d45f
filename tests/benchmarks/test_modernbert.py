"""The benchmark of ModernBERT runs on a CPU with a tiny model: both sides have the same results."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from benchmarks import modernbert

ROOT = Path(__file__).parents[2]
CPU = torch.device("cpu")


@pytest.mark.long
@pytest.mark.parametrize("layout", modernbert.LAYOUTS)
def test_both_sides_compute_the_same(layout: str) -> None:
    ours, theirs = modernbert.models("tiny", CPU, trained=True)
    batch = modernbert.make_batch(96, 2, layout, ours.vocab_size)
    assert modernbert.difference(*modernbert.forward(ours, theirs, batch, half=False)) < 1e-5
    assert modernbert.difference(*modernbert.training(ours, theirs, batch, half=False)) < 1e-5


@pytest.mark.long
def test_the_table_has_all_cells() -> None:
    argv = [sys.executable, "-m", "benchmarks.modernbert", "--smoke", "--threads", "1"]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    cells = [line for line in done.stdout.splitlines() if " tokens, " in line]
    assert len(cells) == 8


def test_a_missing_device_is_an_error_in_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["modernbert", "--device", "cuda:999"])
    with pytest.raises(SystemExit) as error:
        modernbert.main()
    assert str(error.value).startswith("error: ") and "\n" not in str(error.value)
