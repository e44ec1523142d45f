"""The benchmark of limits: all cases run, and a process beyond its bounds is stopped."""

import json
import sys
from pathlib import Path

import pytest

from benchmarks import limits
from benchmarks._common import Bounds, run_process

PROGRAM = "import time; data = bytearray({size}); time.sleep({seconds})"


@pytest.mark.parametrize(
    ("size", "seconds", "most_seconds", "exceeded"),
    [
        (300_000_000, 60, 60, "more than 0.2 GB"),
        (1, 60, 1, "more than 1 s"),
        (1, 0, 60, ""),
    ],
)
def test_a_process_that_exceeds_a_bound_is_stopped(
    size: int, seconds: int, most_seconds: int, exceeded: str
) -> None:
    argv = [sys.executable, "-c", PROGRAM.format(size=size, seconds=seconds)]
    done = run_process(argv, bounds=Bounds(200, most_seconds))
    assert done.exceeded == exceeded
    assert done.seconds < 50


@pytest.mark.long
def test_all_cases_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    record = tmp_path / "limits.json"
    monkeypatch.setattr(sys, "argv", ["limits", "--smoke", "-o", str(record)])
    limits.main()
    results = json.loads(record.read_text("utf-8"))["results"]
    sizes = limits.SMOKE
    assert len(results) == 4 + len(sizes.evaluated_labels) + len(sizes.trained_labels)
    table = capsys.readouterr().out.splitlines()[2:-2]
    assert [line.split(" | ")[0].strip("| ") for line in table] == list(results)


def test_a_stopped_case_has_its_bound_in_the_table() -> None:
    results = {"labels": {"before": "more than 5 GB", "now": [1367, 3.26]}}
    assert limits.limits_table(results).splitlines()[-1] == (
        "| labels | more than 5 GB | 1,367 MB, 3.3 s |"
    )
