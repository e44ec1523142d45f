"""Cleaning by jobs of Slurm, of one node that the tests start."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.cleaning.making import PROSE, read_rows, write_texts
from tests.in_process import exit_code
from tests.slurm import slurm
from tests.warm import ROOT

__all__ = ["slurm"]
pytestmark = pytest.mark.long
pytest.importorskip("datatrove")


@pytest.fixture
def arguments(slurm: str, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Arguments of the executor. Jobs inherit the environment, with this tree's modules."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    import datatrove

    programs = Path(datatrove.__file__).parents[4] / "bin"
    monkeypatch.setenv("PATH", f"{os.environ['PATH']}:{programs}")
    values = [f"partition={slurm}", "time=00:10:00"]
    return ["--executor", "slurm", *(word for v in values for word in ("--executor-arg", v))]


@pytest.fixture
def source(tmp_path: Path) -> Path:
    write_texts(tmp_path / "in" / "a.jsonl", [PROSE, "Too short.", f"Home | About\n{PROSE}"])
    write_texts(tmp_path / "in" / "b.jsonl", [PROSE, PROSE.replace("Monday", "Friday")])
    return tmp_path / "in"


def clean(*words: object) -> int:
    return exit_code(["corpus", "clean", *map(str, words), "--quiet"])


def queue() -> str:
    done = subprocess.run(["squeue", "-h"], capture_output=True, text=True, check=True)
    return done.stdout


def assert_no_jobs() -> None:
    """Check that all jobs end within a minute; jobs that are complete end after their results."""
    deadline = time.monotonic() + 60
    while queue() and time.monotonic() < deadline:
        time.sleep(0.5)
    assert queue() == ""


def test_jobs_have_the_texts_of_processes(
    source: Path, tmp_path: Path, arguments: list[str]
) -> None:
    options = ("--rule", "c4", "--deduplicate", "lines")
    assert clean(source, "-o", tmp_path / "local", *options) == 0
    assert clean(source, "-o", tmp_path / "slurm-out", *options, *arguments) == 0
    assert read_rows(tmp_path / "slurm-out") == read_rows(tmp_path / "local")
    records = [tmp_path / name / "cleaning.json" for name in ("local", "slurm-out")]
    assert records[0].read_bytes() == records[1].read_bytes()
    assert_no_jobs()


def test_the_error_of_a_job_is_one_line(
    source: Path, tmp_path: Path, arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    (source / "c.jsonl").write_text('{"text": 1}\n')
    code = clean(source, "-o", tmp_path / "out", "--rule", "c4", *arguments)
    errors = capsys.readouterr().err
    assert code == 3, errors
    assert "c.jsonl, line 1: 'text' is not a string" in errors
    write_texts(source / "c.jsonl", ["one"])
    other = [word.replace("partition=cpu", "partition=none") for word in arguments]
    assert clean(source, "-o", tmp_path / "out", "--rule", "c4", *other, "--force") == 2
    assert "sbatch refused the jobs of rules" in capsys.readouterr().err
    assert clean(source, "-o", tmp_path / "out", "--rule", "c4", *arguments[:2], "--force") == 2
    assert "time=04:00:00" in capsys.readouterr().err
    assert_no_jobs()


def test_an_interrupted_command_ends_its_jobs_and_is_resumed(
    source: Path, tmp_path: Path, arguments: list[str]
) -> None:
    words = ["corpus", "clean", source, "-o", tmp_path / "out", "--deduplicate", "lines"]
    command = [sys.executable, "-m", "zoo", *map(str, words), *arguments]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    while not queue() and process.poll() is None:
        time.sleep(0.2)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate()
    assert process.returncode == 130, errors
    assert_no_jobs()
    assert exit_code([*map(str, words), *arguments, "--resume", "--quiet"]) == 0
    assert len(read_rows(tmp_path / "out")) == 3
