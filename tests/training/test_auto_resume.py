"""``--auto-resume``: one command starts a run, resumes it, and leaves a finished one as it is."""

import contextlib
import os
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from tests import warm
from tests.training.making import TORCHRUN
from tests.training.runs import (
    DATA,
    assert_same,
    command,
    cut,
    finish,
    lines,
    options,
    run_training,
    wait_until,
)

pytestmark = pytest.mark.usefixtures("shared_home")
FAMILY = "gpt"  # with dropout, whose random state must be restored


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory: pytest.TempPathFactory, training_home: Path) -> Path:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ZOO_HOME", str(training_home))
        return run_training(tmp_path_factory.mktemp("unbroken") / "run", FAMILY)


def arguments(run: Path) -> list[str]:
    return [FAMILY, *options(), "-o", str(run), "--auto-resume"]


def test_one_command_starts_resumes_and_ends(unbroken: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    done = finish(*arguments(run))
    assert done.returncode == 0, done.stderr
    assert_same(unbroken, run)
    steps = (run / "metrics.jsonl").read_bytes()
    done = finish(*arguments(run))
    assert done.returncode == 0, done.stderr
    assert "already finished" in done.stderr
    assert_same(unbroken, run)
    assert (run / "metrics.jsonl").read_bytes() == steps


@pytest.mark.long
def test_an_interrupted_run_goes_on(unbroken: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(unbroken, run)
    cut(run, 6)
    done = finish(*arguments(run))
    assert done.returncode == 0, done.stderr
    assert_same(unbroken, run)


def test_other_settings_are_shown(unbroken: Path) -> None:
    done = finish(*arguments(unbroken), "--learning-rate", "0.5", "--seed", "3")
    assert done.returncode == 2
    assert "optimizer.learning_rate: not given and 0.5" in done.stderr
    assert "seed: not given and 3" in done.stderr


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--auto-resume"], "name its directory with -o"),
        (["--auto-resume", "-o", "{run}", "--resume", "{run}"], "exclude each other"),
        (["--auto-resume", "-o", "{run}", "--force"], "exclude each other"),
        (["--auto-resume", "-o", "{run}", "--dry-run"], "exclude each other"),
        (["--auto-resume", "-o", "{run}", "--seeds", "2"], "is a single run"),
        (["--auto-resume", "-o", "{folder}"], "exists"),
    ],
)
def test_bad_input(unbroken: Path, tmp_path: Path, words: list[str], message: str) -> None:
    named = [word.format(run=unbroken, folder=tmp_path) for word in words]
    done = finish(FAMILY, *options(), *named)
    assert done.returncode == 2 and message in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


@pytest.mark.long
def test_seeds(tmp_path: Path) -> None:
    run = tmp_path / "run"
    words = [FAMILY, *options(max_steps=2, eval_steps=2), "-o", str(run), "--auto-resume"]
    assert finish(*words, "--seeds", "2").returncode == 0
    done = finish(*words, "--seeds", "2")
    assert done.returncode == 0, done.stderr
    done = finish(*words, "--seeds", "3")
    assert done.returncode == 2 and "has the seeds 0, 1, not 0, 1, 2" in done.stderr
    done = finish(*words, "--seeds", "2", "--learning-rate", "0.5")
    assert done.returncode == 2 and "optimizer.learning_rate" in done.stderr
    done = finish(*words)
    assert done.returncode == 2 and "give --seeds" in done.stderr


@pytest.mark.long  # the option is read in one place
def test_other_commands(unbroken: Path, tmp_path: Path) -> None:
    table = tmp_path / "table.csv"
    rows = [f"{'good' if row % 2 else 'bad'} day {row},{row % 2}" for row in range(16)]
    table.write_text("\n".join(["text,label", *rows]) + "\n")
    model = str(unbroken / "model")
    commands = [
        ["finetune", model, "--task", "text-classification", "--train", str(table)],
        ["distill", "--teacher", model, "--student", model, *DATA, "--no-score"],
    ]
    for words in commands:
        run = tmp_path / words[0]
        every = [*words, "--max-steps", "2", "--device", "cpu", "-o", str(run), "--auto-resume"]
        for _ in range(2):
            done = warm.zoo(*every)
            assert done.returncode == 0, done.stderr
        done = warm.zoo(*every, "--learning-rate", "0.5")
        assert done.returncode == 2 and "optimizer.learning_rate" in done.stderr


@pytest.mark.long
def test_torchrun_starts_again_after_a_killed_process(tmp_path: Path) -> None:
    """The restarted processes end with the bytes of a run that was not killed."""
    whole, run = tmp_path / "whole", tmp_path / "run"
    words = [FAMILY, *options(max_steps=40, save_steps=5)]
    launcher = [*TORCHRUN, "--max-restarts", "3", *command()[1:]]
    subprocess.run([*launcher, *words, "-o", str(whole)], check=True, capture_output=True)
    process = subprocess.Popen(
        [*launcher, *words, "-o", str(run), "--auto-resume"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    wait_until(lambda: lines(run) >= 8, process)
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    with contextlib.suppress(ProcessLookupError):
        os.kill(int(children[-1]), signal.SIGKILL)
    _, errors = process.communicate(timeout=300)
    assert process.returncode == 0, errors[-3000:]
    assert_same(whole, run)
