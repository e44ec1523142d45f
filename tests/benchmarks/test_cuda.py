"""The benchmark of a GPU runs on a CPU with tiny models: both sides have the same losses."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.long
def test_the_same_code_runs_on_a_cpu() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.cuda", "--device", "cpu", "--smoke"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    differences = [float(number) for number in re.findall(r"losses differ by (\S+)", done.stdout)]
    assert len(differences) == 4 and max(differences) < 1e-5
    rows = [line.split(" | ") for line in done.stdout.splitlines() if line.startswith("| ")]
    training = [row for row in rows if " rows" in row[0]]
    assert len(training) == 4
    for row in training:
        ours, theirs = (float(row[column].replace(",", "")) for column in (1, 5))
        assert ours > 0 < theirs
    sides = {
        row[0].strip("| "): row for row in rows if row[0].startswith(("| embed, ", "| generate, "))
    }
    assert len(sides) == 6
    assert {row[2].strip("| ") for row in sides.values()} == {"1.0000"}


@pytest.mark.long
def test_a_missing_device_is_an_error_in_one_line() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.cuda", "--device", "cuda:999"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr.startswith("error: ") and done.stderr.count("\n") == 1
