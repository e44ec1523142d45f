"""Verification of runs: every flipped bit of a checkpoint is detected, and the file is named."""

import random
import shutil
from pathlib import Path

import pytest

from tests.training.runs import flip, run_training
from zoo.io.digests.checks import Check
from zoo.training.state.progress import list_checkpoints
from zoo.training.state.verify import (
    differing_files,
    is_run,
    is_run_checkpoint,
    verify_run,
    verify_run_checkpoint,
)

pytestmark = pytest.mark.usefixtures("shared_home")


@pytest.fixture(scope="module")
def intact(tmp_path_factory: pytest.TempPathFactory, training_home: Path) -> Path:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ZOO_HOME", str(training_home))
        return run_training(
            tmp_path_factory.mktemp("intact") / "run", "gpt", ema_decay=0.9, max_steps=6
        )


@pytest.fixture
def run(intact: Path, tmp_path: Path) -> Path:
    shutil.copytree(intact, tmp_path / "run")
    return tmp_path / "run"


def failures(checks: list[Check]) -> list[Check]:
    return [check for check in checks if check.outcome == "failed"]


def assert_every_flip_is_named(run: Path, count: int) -> None:
    """Check flips in checkpoints, settings and log."""
    rng = random.Random(0)
    files = sorted(path for path in (run / "checkpoints").rglob("*") if path.is_file())
    files += [run / "run.json", run / "config.yaml", run / "metrics.jsonl"]
    for number in range(count):
        file = files[number % len(files)]
        content = file.read_bytes()
        place, bit = rng.randrange(len(content)), rng.randrange(8)
        flip(file, place, bit)
        details = [check.detail for check in failures(verify_run(run))]
        assert [detail for detail in details if str(file) in detail], (file, place, bit)
        file.write_bytes(content)


def test_an_intact_run_passes(run: Path) -> None:
    assert is_run(run)
    assert {check.outcome for check in verify_run(run)} == {"ok"}
    names = [check.name for check in verify_run(run)]
    assert names == [
        "settings",
        "log",
        "speed",
        "events",
        "step-00000003",
        "step-00000006",
        "model",
    ]


def test_a_flipped_bit_is_named(run: Path) -> None:
    assert_every_flip_is_named(run, 27)


@pytest.mark.promise("bit-flip", cases=1_000)
@pytest.mark.long
def test_a_thousand_flipped_bits_are_named(run: Path) -> None:
    assert_every_flip_is_named(run, 1000)


def test_a_checkpoint_is_checked_alone(run: Path) -> None:
    path = list_checkpoints(run)[3]
    assert is_run_checkpoint(path) and not is_run(path)
    assert not failures(verify_run_checkpoint(path))
    (path / "more.safetensors").write_bytes(b"")
    (failed,) = failures(verify_run_checkpoint(path))
    assert failed.name == path.name and "does not list: more.safetensors" in failed.detail


def test_a_file_that_file_managers_leave_is_no_fault(run: Path) -> None:
    (list_checkpoints(run)[3] / ".DS_Store").write_bytes(b"")
    assert not failures(verify_run(run))


def test_a_changed_model_and_damaged_events_are_named(run: Path) -> None:
    flip(run / "model" / "model.safetensors")
    (events,) = run.glob("events.*")
    flip(events, 30)
    assert {check.name for check in failures(verify_run(run))} == {"model", "events"}


def test_a_log_without_its_end_is_named(run: Path) -> None:
    log = run / "metrics.jsonl"
    log.write_bytes(log.read_bytes()[:-1])
    assert "step-00000006" in {check.name for check in failures(verify_run(run))}


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
