"""Comparison of directories of runs: what holds times is left out, and nothing else."""

import shutil
from pathlib import Path

import pytest

from tests.training.runs import run_training
from zoo.training.state.equal_files import differing_files

pytestmark = pytest.mark.usefixtures("shared_home")
MEASURED = ("performance.jsonl", "report.html")


def test_every_other_file_is_compared(tmp_path: Path) -> None:
    run, copy = run_training(tmp_path / "run", "gpt", max_steps=2), tmp_path / "copy"
    shutil.copytree(run, copy)
    assert differing_files(run, copy) == []
    files = [path for path in copy.rglob("*") if path.is_file()]
    names = {path.relative_to(copy).as_posix() for path in files}
    changed = {name for name in names if not name.startswith("events.")} - {*MEASURED}
    assert {"run.json", "config.yaml", "metrics.jsonl", "model/config.json"} < changed
    for path in files:
        path.write_bytes(path.read_bytes() + b"x")
    (copy / "model" / "more.json").write_text("{}")
    (copy / "final.json").unlink()
    assert differing_files(run, copy) == sorted({*changed, "model/more.json"})
