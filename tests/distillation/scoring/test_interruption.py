"""Scores of runs whose process got a signal, and of runs of several processes."""

import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.distillation.making import distill, pretrained, settings
from tests.training.making import torchrun
from tests.training.runs import records
from zoo.training.logging.scores import read_scores

pytestmark = pytest.mark.long  # processes that import torch


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("run") / "run"
    return distill(path, settings(pretrained("bert"), "distilbert", max_steps=2))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_during_scoring_leaves_a_run_that_is_scored_later(
    run: Path, tmp_path: Path, number: signal.Signals
) -> None:
    path = tmp_path / "run"
    shutil.copytree(run, path)
    call = [sys.executable, "-m", "zoo", "distill", "--resume", str(path), "--device", "cpu"]
    process = subprocess.Popen(call, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        lines = iter(process.stderr.readline, "")  # of which others have the test's name in paths
        line = next((line for line in lines if "scoring the student" in line), "it ended")
        assert "and its teacher" in line
        process.send_signal(number)
        rest = process.communicate(timeout=300)[1]
    finally:
        process.kill()
    assert process.returncode == 130, rest
    assert f"is trained; `zoo distill --resume {path}` scores it" in rest
    assert "Traceback" not in rest
    assert read_scores(path) is None
    done = subprocess.run(call, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    scores = read_scores(path)
    assert scores is not None and f"{scores.student.metrics['loss']:.4f}" in done.stdout


def test_a_run_of_two_processes_is_scored_once(run: Path, tmp_path: Path) -> None:
    tree = settings(pretrained("bert"), "distilbert", max_steps=2)
    (tmp_path / "r.yaml").write_text(yaml.safe_dump(tree))
    path = tmp_path / "run"
    torchrun(
        *("-m", "zoo", "distill", str(tmp_path / "r.yaml"), "--device", "cpu", "-o", str(path)),
        *("--score-backend", "cpu"),
    )
    scores = read_scores(path)
    assert scores is not None
    expected = records(path, "validation")[-1]["losses"]["masked-lm"]
    assert scores.student.metrics["loss"] == pytest.approx(expected, abs=1e-4)
