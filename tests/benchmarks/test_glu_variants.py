"""The benchmark of feed-forward networks: equal parameters, and a row for each network."""

import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.glu_variants import VARIANTS, parameters, shape

ROOT = Path(__file__).parents[2]


def test_variants_have_as_many_parameters() -> None:
    counts = {name: parameters(shape(name)) for name in VARIANTS}
    assert {name: n for name, n in counts.items() if abs(n / counts["relu"] - 1) > 1e-2} == {}
    assert {shape(name).gated for name in VARIANTS} == {True, False}


@pytest.mark.long
def test_a_row_is_printed_for_each_network() -> None:
    argv = [sys.executable, "-m", "benchmarks.glu_variants", "--variants", "relu", "geglu"]
    argv += ["--seeds", "1", "--set", "max_steps=2", "--set", "eval_sequences=2"]
    argv += ["--set", "lr_scheduler.warmup_steps=1"]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    rows = [line for line in done.stdout.splitlines() if line.startswith(("| relu", "| geglu"))]
    assert len(rows) == 2
