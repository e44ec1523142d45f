"""The benchmark of pretrained LSTMs: mean and range of each way to begin, and a short run."""

import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.pretrained_lstm import FROM_SCRATCH, OBJECTIVES, rows_of

ROOT = Path(__file__).parents[2]
WAYS = (FROM_SCRATCH, *OBJECTIVES)


def test_a_row_has_mean_and_range() -> None:
    scores = [
        {name: {"accuracy": value + number, "loss": 1.0} for number, name in enumerate(WAYS)}
        for value in (0.25, 0.5, 0.6)
    ]
    assert rows_of(scores)[0] == [FROM_SCRATCH, "0.450 (0.250 to 0.600)", "1.000 (1.000 to 1.000)"]
    assert [row[0] for row in rows_of(scores)] == [*WAYS]


@pytest.mark.long
def test_a_row_is_printed_for_each_way(tmp_path: Path) -> None:
    labelled = "\n".join(f"film {number} is fine\t{number % 2}" for number in range(80))
    for name in ("train.tsv", "dev.tsv"):
        (tmp_path / name).write_text(labelled)
    argv = [sys.executable, "-m", "benchmarks.pretrained_lstm", str(ROOT / "tests/fixtures/books")]
    argv += [str(tmp_path), "--quick"]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    rows = [line for line in done.stdout.splitlines() if line.startswith("|")]
    assert [line.split(" | ")[0].strip("| ") for line in rows[2:]] == [*WAYS]
