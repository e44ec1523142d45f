"""The benchmarks in several processes: losses agree, and all sides are timed."""

import subprocess
import sys

import pytest

pytestmark = pytest.mark.long


def run(module: str, *arguments: str) -> list[str]:
    """Run a benchmark, and return the first cells of its table."""
    argv = [sys.executable, "-m", f"benchmarks.{module}", "--smoke", *arguments]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, done.stderr[-3000:]
    rows = [line for line in done.stdout.splitlines() if line.startswith("| ")]
    return [row.split("|")[1].strip() for row in rows[2:]]


def test_both_ways_are_compared_with_plain_loops() -> None:
    """The benchmark ends with an error if losses differ."""
    assert run("distributed") == ["zoo DDP", "plain DDP", "zoo FSDP2", "plain FSDP2"]


@pytest.mark.parametrize("processes", ["1", "2"])
def test_saves_are_timed(processes: str) -> None:
    names = ["none", "in background", "before next step"]
    assert run("checkpointing", "--processes", processes) == names
