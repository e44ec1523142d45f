"""Resumed runs end with the same weights and log as uninterrupted ones."""

import contextlib
import json
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import warm
from tests.families.every import every_family
from tests.reporting import record
from tests.training.runs import (
    assert_resumes_from,
    assert_same,
    cut,
    finish,
    flip,
    lines,
    options,
    records,
    run_training,
    start,
    wait_until,
)
from zoo.data.cache import SAMPLE
from zoo.errors import Interrupted, UsageError
from zoo.plugins import all_families
from zoo.training.directory import locked
from zoo.training.distributed.context import DistContext
from zoo.training.graceful_shutdown import StopSignal
from zoo.training.run import PretrainRun
from zoo.training.state.progress import list_checkpoints

pytestmark = pytest.mark.usefixtures("shared_home")
FAMILY = "gpt"  # with dropout, whose random state must be restored


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory: pytest.TempPathFactory, training_home: Path) -> Path:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ZOO_HOME", str(training_home))
        return run_training(tmp_path_factory.mktemp("unbroken") / "run", FAMILY, ema_decay=0.9)


PRETRAINED = [name for name in all_families() if name != "model2vec"]  # It is distilled.


@pytest.mark.by_default("t5")
@pytest.mark.parametrize("family", every_family(PRETRAINED, default=("deberta", "t5")))
def test_every_family_ends_as_without_the_interruption(family: str, tmp_path: Path) -> None:
    """With the recipe's objective, and with dropout where it has some."""
    whole = run_training(tmp_path / "whole", family, max_steps=4, save_steps=2, eval_steps=4)
    assert_resumes_from(whole, tmp_path, 2)


@pytest.mark.long
def test_killed_twice_in_mid_step(unbroken: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    first = [FAMILY, *options(ema_decay=0.9), "-o", str(run)]
    for arguments, seen in ((first, 5), (["--resume", str(run)], 10)):
        process = start(*arguments)
        wait_until(lambda seen=seen: lines(run) >= seen, process)  # type: ignore[misc]
        process.kill()
        process.communicate()
        assert list(list_checkpoints(run))[-1] < 12
    done = finish("--resume", str(run))
    assert done.returncode == 0, done.stderr
    assert_same(unbroken, run)


@pytest.mark.parametrize(
    "number",
    [
        signal.SIGINT,
        *(
            pytest.param(number, marks=pytest.mark.long)
            for number in (signal.SIGTERM, signal.SIGUSR1, signal.SIGHUP)
        ),
    ],
)
def test_a_signal_saves_and_stops(unbroken: Path, tmp_path: Path, number: int) -> None:
    run = tmp_path / "run"
    process = start(FAMILY, *options(ema_decay=0.9, save_steps=1000), "-o", str(run))
    wait_until(lambda: lines(run) >= 3, process)
    process.send_signal(number)
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == 130, stderr
    (step,) = list_checkpoints(run)
    assert " ".join(stderr.split()).endswith(  # messages are wrapped
        f"error: interrupted; step {step} of 12 is saved; zoo pretrain --resume {run} resumes it"
    )
    assert 1 <= step < 12
    done = finish("--resume", str(run))
    assert done.returncode == 0, done.stderr
    assert (run / "metrics.jsonl").read_bytes() == (unbroken / "metrics.jsonl").read_bytes()


@pytest.mark.long  # test_graceful_shutdown.py has both signals in one process
def test_a_second_signal_stops_at_once(tmp_path: Path) -> None:
    run = tmp_path / "run"
    # steps of a whole book are so long that the first signal is still pending
    changes = {"data": {"paths": [str(SAMPLE / "alice.txt")]}, "global_batch_tokens": 64000}
    process = start(FAMILY, *options(max_steps=100, **changes), "-o", str(run))
    wait_until(run.exists, process)
    process.send_signal(signal.SIGINT)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=20)
    assert process.returncode == 130
    assert not list_checkpoints(run)


@pytest.mark.long  # the next test has two processes, and test_max_time.py a lock that is held
def test_a_second_process_is_refused_while_one_is_at_work(tmp_path: Path) -> None:
    """The log stays unchanged, and the first process continues."""
    run = tmp_path / "run"
    process = start(FAMILY, *options(max_steps=100_000), "-o", str(run))
    wait_until(lambda: lines(run) >= 3, process)
    done = finish("--resume", str(run))
    assert process.poll() is None and done.returncode == 2
    assert f"another process is at work in {run}" in done.stderr
    process.terminate()
    process.communicate(timeout=60)
    steps = [record["step"] for record in records(run)]
    assert steps == list(range(1, len(steps) + 1))
    with locked(run):  # the lock was released
        pass


@pytest.mark.long
def test_of_two_processes_that_resume_one_run_one_does(unbroken: Path, tmp_path: Path) -> None:
    """The other is told so, and nothing is lost."""
    run = tmp_path / "run"
    shutil.copytree(unbroken, run)
    cut(run, 9)
    done = warm.at_once(*[["pretrain", "--resume", run, "--device", "cpu"]] * 2)
    codes = sorted(one.returncode for one in done)
    assert codes in ([0, 0], [0, 2])  # or the second came when the first had ended
    for one in done:
        if one.returncode:
            assert f"error: another process is at work in {run}" in one.stderr
    assert sum("is resumed at step 9 of 12" in one.stderr for one in done) == 1
    assert_same(unbroken, run)


def test_staging_directories_of_killed_processes_are_removed(
    unbroken: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    shutil.copytree(unbroken, run)
    cut(run, 9)
    backup = run / "checkpoints" / "step-00000009.bak"  # a user's copy
    shutil.copytree(list_checkpoints(run)[9], backup)
    torn = [
        "checkpoints/.step-00000012.zoo-01234567",
        "checkpoints/step-00000003",
        ".model.zoo-89abcdef",
        ".report.html.zoo-01234567",
    ]
    for name in torn:
        (run / name).mkdir()
        (run / name / "weights.safetensors").write_bytes(b"half")
    (tmp_path / ".run.zoo-01234567.lock").touch()  # killed just after the run was created
    PretrainRun({}, DistContext.initialize("cpu")).resume(run)
    assert not [name for name in torn if (run / name).exists()] and backup.exists()
    assert list(tmp_path.iterdir()) == [run]
    assert_same(unbroken, run, ignore=["checkpoints/*.bak/*"])


def test_resuming_a_finished_run_changes_nothing(unbroken: Path) -> None:
    before = (unbroken / "metrics.jsonl").read_bytes()
    done = finish("--resume", str(unbroken))
    assert done.returncode == 0, done.stderr
    assert (unbroken / "metrics.jsonl").read_bytes() == before


def test_a_changed_setting_is_named(unbroken: Path) -> None:
    done = finish("--resume", str(unbroken), "--set", "optimizer.max_grad_norm=0.5")
    assert done.returncode == 2
    assert "optimizer.max_grad_norm: 1.0 and 0.5" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_settings_that_were_changed_where_they_are_kept_are_named(
    unbroken: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    shutil.copytree(unbroken, run)
    text = (run / "config.yaml").read_text()
    assert "max_grad_norm: 1.0" in text
    (run / "config.yaml").write_text(text.replace("max_grad_norm: 1.0", "max_grad_norm: 0.5"))
    with pytest.raises(
        UsageError, match=r"other settings: optimizer\.max_grad_norm: 1\.0 and 0\.5;"
    ):
        PretrainRun({}, DistContext.initialize("cpu")).resume(run)


def test_a_changed_corpus_is_refused(tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text("Once upon a time there was a fox.\n\n" * 400)
    run, data = tmp_path / "run", {"paths": [str(text)]}
    run_training(run, FAMILY, data=data, max_steps=2)
    text.write_text("Once upon a time there was a hare.\n\n" * 400)
    done = finish("--resume", str(run))
    assert done.returncode == 2
    assert "is not the one" in done.stderr


@pytest.mark.by_default("weights")
@pytest.mark.parametrize("fault", ["weights", "state", "missing", "step", "other run"])
def test_a_damaged_checkpoint_is_passed_over_and_kept(
    unbroken: Path, tmp_path: Path, fault: str
) -> None:
    run = tmp_path / "run"
    shutil.copytree(unbroken, run)
    shutil.rmtree(run / "model")
    last = list_checkpoints(run)[12]
    if fault == "weights":
        flip(last / "weights.safetensors")
    elif fault == "state":
        flip(last / "state.json", 12)
    elif fault == "missing":
        (last / "state.json").unlink()
    elif fault == "step":  # a valid checkpoint of another step
        shutil.copy(list_checkpoints(run)[9] / "state.json", last / "state.json")
    else:
        other = run_training(tmp_path / "other", FAMILY, ema_decay=0.9, seed=1)
        shutil.copytree(list_checkpoints(other)[12], last, dirs_exist_ok=True)
    done = finish("--resume", str(run))
    assert done.returncode == 0, done.stderr
    (warning,) = [line for line in done.stderr.splitlines() if "warning" in line]
    assert f"{last} is damaged and was renamed to {last.name}.damaged" in warning
    assert "resuming from step-00000009 (" in warning
    assert last.with_name("step-00000012.damaged").is_dir()
    assert_same(unbroken, run, ignore=["checkpoints/*.damaged/*"])


@pytest.mark.long
def test_a_changed_log_ends_no_run_that_has_an_earlier_checkpoint(
    unbroken: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    shutil.copytree(unbroken, run)
    shutil.rmtree(run / "model")
    flip(run / "metrics.jsonl", (run / "metrics.jsonl").read_bytes().rindex(b"loss") + 8)
    done = finish("--resume", str(run))
    assert done.returncode == 0, done.stderr
    assert "metrics.jsonl was changed before byte" in done.stderr
    assert_same(unbroken, run, ignore=["checkpoints/*.damaged/*"])


def test_a_run_without_an_intact_checkpoint_is_refused(unbroken: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(unbroken, run)
    for path in list_checkpoints(run).values():
        flip(path / "weights.safetensors")
    done = finish("--resume", str(run))
    assert done.returncode == 3
    (line,) = done.stderr.splitlines()
    assert "none of its 2 checkpoints is intact" in line
    assert "step-00000012/weights.safetensors was changed" in line
    assert list(list_checkpoints(run)) == [9, 12]


def test_a_record_of_more_steps_than_the_run_has_is_refused(tmp_path: Path) -> None:
    """Without a digest, as in a handwritten file."""
    run = run_training(tmp_path / "run", FAMILY, max_steps=2)
    (path,) = list_checkpoints(run).values()
    record = json.loads((path / "state.json").read_bytes())
    path.rename(path.with_name("step-1000000000"))
    path = path.with_name("step-1000000000")
    (path / "state.json").write_text(json.dumps({**record, "step": 10**9, "digest": ""}))
    shutil.rmtree(run / "model")
    done = finish("--resume", str(run))
    assert done.returncode == 3
    assert "is of step 1000000000, and the run has 2" in done.stderr
    assert not (run / "model").exists()


def test_a_result_that_cannot_be_written_is_refused_before_the_first_step(
    unbroken: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    shutil.copytree(unbroken, run)
    cut(run, 9)
    (run / "model").write_text("mine")
    before = (run / "metrics.jsonl").read_bytes()
    done = finish("--resume", str(run))
    assert done.returncode == 2
    assert f"{run / 'model'} exists and is not a directory" in done.stderr
    assert (run / "metrics.jsonl").read_bytes() == before
    assert list(list_checkpoints(run)) == [9] and (run / "model").read_text() == "mine"


def test_the_last_and_the_best_are_kept(tmp_path: Path) -> None:
    run = run_training(
        tmp_path / "run", FAMILY, save_total_limit=2, save_steps=1, eval_steps=1, max_steps=6
    )
    losses = {record["step"]: record["loss"] for record in records(run, "validation")}
    best = min(losses, key=losses.__getitem__)
    assert set(list_checkpoints(run)) == {5, 6, best}
    state = json.loads((list_checkpoints(run)[6] / "state.json").read_bytes())
    assert state["best"] == [losses[best], best]
    old = min({1, 2, 3, 4} - {best})  # as if the process had been killed before it removed this one
    shutil.copytree(list_checkpoints(run)[5], run / "checkpoints" / f"step-{old:08}")
    shutil.rmtree(run / "model")
    PretrainRun({}, DistContext.initialize("cpu")).resume(run)
    assert set(list_checkpoints(run)) == {5, 6, best}


@pytest.mark.long
@pytest.mark.parametrize("steps", [6, pytest.param(200, marks=pytest.mark.long)])
def test_a_run_that_is_resumed_at_every_step_does_not_drift(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, steps: int
) -> None:
    changes = {"max_steps": steps, "ema_decay": 0.9, "eval_steps": 3, "save_steps": steps}
    whole, broken = run_training(tmp_path / "whole", FAMILY, **changes), tmp_path / "broken"

    @contextlib.contextmanager
    def at_once() -> Iterator[StopSignal]:
        stop = StopSignal()
        stop.received = True
        yield stop

    monkeypatch.setattr("zoo.training.build.handle_signals", at_once)
    with pytest.raises(Interrupted):
        run_training(broken, FAMILY, **changes)
    for _ in range(steps - 2):
        with pytest.raises(Interrupted):
            PretrainRun({}, DistContext.initialize("cpu")).resume(broken)
    PretrainRun({}, DistContext.initialize("cpu")).resume(broken)
    names = ("metrics.jsonl", "model/model.safetensors")
    different = [
        name for name in names if (whole / name).read_bytes() != (broken / name).read_bytes()
    ]
    if steps == 200:
        record("resume", cases=steps - 1, failures=len(different))
    assert different == []
