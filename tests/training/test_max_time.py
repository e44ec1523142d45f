"""Runs that stop after a time, and go on as if they had not; runs in the place of earlier ones."""

import json
import logging
import math
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.finetuning.making import labelled, settings
from tests.training.runs import (
    assert_same,
    finish,
    finish_in_two_processes,
    options,
    records,
    run_training,
    tree,
)
from zoo.errors import SourceError, UsageError
from zoo.finetuning.runs import FineTuneRun, select_median_run
from zoo.training.directory import locked
from zoo.training.distributed.context import DistContext
from zoo.training.run import PretrainRun, Run
from zoo.training.seeds import resume_seeds, train_seeds
from zoo.training.setup import pretrain_setup
from zoo.training.state.progress import is_finished, list_checkpoints
from zoo.training.state.verify import verify_run

pytestmark = pytest.mark.usefixtures("shared_home")
HERE = DistContext.initialize("cpu")
AT_ONCE = 1e-9  # seconds: a run stops after its first step
WITHOUT = {"keep_optimizer": False}  # its state is needed as long as the run has not ended


def stop_and_go_on(kind: type[Run], values: dict[str, Any], whole: Path, run: Path) -> None:
    """Train a run step by step, and compare it with an uninterrupted one."""
    kind(values, HERE, whole).start()
    kind(values, HERE, run, max_time=AT_ONCE).start()
    assert not is_finished(run)
    final = json.loads((run / "final.json").read_text())
    assert (final["stopped_by"], final["step"]) == ("max_time", 1)
    training = json.loads((run / "model/zoo.json").read_text())["training"]
    assert (training["stopped_by"], training["steps"]) == ("max_time", 1)
    assert [check.outcome for check in verify_run(run) if check.outcome != "ok"] == []
    kind({}, HERE, max_time=AT_ONCE).resume(run)
    assert json.loads((run / "final.json").read_text())["step"] == 2
    kind({}, HERE).resume(run)
    assert is_finished(run)
    assert "stopped_by" not in (run / "final.json").read_text()
    assert_same(whole, run)


def test_pretraining_stops_and_goes_on(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    values = tree("gpt", **WITHOUT, max_steps=6, logging_steps=4, ema_decay=0.9)
    with caplog.at_level(logging.INFO, "zoo"):
        stop_and_go_on(PretrainRun, values, tmp_path / "whole", run := tmp_path / "run")
    assert f"{run} stopped after --max-time, at step 1 of 6; `zoo pretrain --resume" in caplog.text
    assert f"{run} is resumed at step 1 of 6" in caplog.text


@pytest.mark.long  # the trainer stops all kinds of runs
def test_fine_tuning_stops_and_goes_on(tmp_path: Path) -> None:
    labelled(tmp_path / "table.tsv")
    values = settings("bert", tmp_path / "table.tsv", vocab_size=60, **WITHOUT)
    stop_and_go_on(FineTuneRun, values, tmp_path / "whole", tmp_path / "run")


@pytest.mark.long
def test_two_processes_stop_at_one_step(tmp_path: Path) -> None:
    words = ["gpt", *options(max_steps=4)]
    finish_in_two_processes("pretrain", *words, "-o", str(tmp_path / "whole"))
    finish_in_two_processes(
        "pretrain", *words, "-o", str(run := tmp_path / "run"), "--max-time", "0.001s"
    )
    assert [*list_checkpoints(run)] == [1]
    finish_in_two_processes("pretrain", "--resume", str(run))
    assert_same(tmp_path / "whole", run)


@pytest.mark.long
def test_a_run_that_stopped_is_continued(tmp_path: Path) -> None:
    values = tree("gpt", **WITHOUT, max_steps=4)
    PretrainRun(values, HERE, tmp_path / "run", max_time=AT_ONCE).start()
    PretrainRun({}, HERE, tmp_path / "child").continue_from(tmp_path / "run")
    whole = run_training(tmp_path / "whole", "gpt", **WITHOUT, max_steps=4)
    assert_same(whole, tmp_path / "child", ignore=["run.json", "report.html"])


@pytest.mark.long
def test_seeds_that_stopped_are_resumed(tmp_path: Path) -> None:
    labelled(tmp_path / "table.tsv")
    values = settings("bert", tmp_path / "table.tsv", vocab_size=60, max_steps=3)
    runs = train_seeds(FineTuneRun(values, HERE, path := tmp_path / "runs", max_time=AT_ONCE), 2)
    assert [is_finished(run) for run in runs] == [False, False]
    with pytest.raises(UsageError, match="seed-0 stopped before its first evaluation"):
        select_median_run(path, runs)
    resume_seeds(FineTuneRun({}, HERE), path)
    assert [is_finished(run) for run in runs] == [True, True]
    assert (select_median_run(path, runs) / "model.safetensors").is_file()


@pytest.mark.long
def test_epochs_are_steps_of_the_corpus(tmp_path: Path) -> None:
    """Of two seeds as well, whose settings have the epochs."""
    values = tree("gpt", num_train_epochs=0.05, eval_steps=10_000, save_steps=10_000)
    del values["max_steps"]
    runs = train_seeds(PretrainRun(values, HERE, tmp_path / "runs"), 2)
    corpus = pretrain_setup(PretrainRun(values, HERE).plan()[0]).corpus  # type: ignore[arg-type]
    one_pass = corpus.record.splits["train"].tokens / 256
    for run in runs:
        assert records(run)[-1]["step"] == math.ceil(0.05 * one_pass)
        assert "num_train_epochs" not in (run / "config.yaml").read_text()
        assert f"eval_steps: {math.ceil(one_pass)}\n" in (run / "config.yaml").read_text()
    with pytest.raises(UsageError, match="counts steps, not epochs; give --max-steps"):
        PretrainRun({"num_train_epochs": 2}, HERE).resume(runs[0])


@pytest.mark.long
def test_rows_of_a_step_may_be_named_when_a_run_goes_on(tmp_path: Path) -> None:
    run = run_training(tmp_path / "run", "gpt", max_steps=2)
    PretrainRun({"batch_size": 4}, HERE).resume(run)  # as it has
    with pytest.raises(UsageError, match="other settings: global_batch_tokens: 256 and 512"):
        PretrainRun({"batch_size": 8}, HERE).resume(run)
    given = {"batch_size": 8, "max_steps": 3}
    child = PretrainRun(given, HERE, tmp_path / "child").continue_from(run).run
    assert records(child)[-1]["tokens"] == 2 * 256 + 512


@pytest.mark.long
def test_force_moves_an_earlier_run(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    run = run_training(tmp_path / "run", "gpt", max_steps=1)
    before = {p.relative_to(run): p.read_bytes() for p in run.rglob("*") if p.is_file()}
    values = tree("gpt", max_steps=2)
    with pytest.raises(UsageError, match=r"run exists; `zoo pretrain --resume"):
        PretrainRun(values, HERE, run).start()
    with caplog.at_level(logging.WARNING, "zoo"):
        PretrainRun(values, HERE, run, force=True).start()
    old = tmp_path / "run.old-1"
    assert f"warning: --force moved the earlier {run} to {old}" in caplog.text
    assert {p.relative_to(old): p.read_bytes() for p in old.rglob("*") if p.is_file()} == before
    assert_same(run_training(tmp_path / "whole", "gpt", max_steps=2), run)
    train_seeds(PretrainRun(values, HERE, run, force=True), 1)
    assert (tmp_path / "run.old-2/run.json").is_file()
    child = PretrainRun({"max_steps": 3}, HERE, run, force=True).continue_from(old)
    assert (tmp_path / "run.old-3/seeds.json").is_file() and child.run == run


@pytest.mark.long
def test_force_moves_nothing_else(tmp_path: Path) -> None:
    values = tree("gpt", max_steps=1)
    (tmp_path / "foreign").mkdir()
    (tmp_path / "foreign/notes.txt").write_text("mine")
    with pytest.raises(UsageError, match=r"is not from zoo: it holds notes\.txt"):
        PretrainRun(values, HERE, tmp_path / "foreign", force=True).start()
    run = run_training(tmp_path / "run", "gpt", max_steps=1)
    with pytest.raises(UsageError, match="belongs to the training run"):
        PretrainRun(values, HERE, run / "model", force=True).start()
    with locked(run), pytest.raises(UsageError, match="another process is at work in"):
        PretrainRun(values, HERE, run, force=True).start()
    seeds = train_seeds(PretrainRun(values, HERE, tmp_path / "seeds"), 1)
    with pytest.raises(UsageError, match=r"seed-0 belongs to .*seeds"):
        PretrainRun(values, HERE, seeds[0], force=True).start()
    missing = {"data": {"paths": [str(tmp_path / "none.txt")]}}
    with pytest.raises(SourceError, match=r"none\.txt"):
        PretrainRun(values, HERE, run, missing, force=True).start()
    assert {p.name for p in tmp_path.iterdir()} == {"foreign", "run", "seeds"}
    (tmp_path / "empty").mkdir()
    PretrainRun(values, HERE, tmp_path / "empty", force=True).start()
    shutil.rmtree(tmp_path / "empty")


@pytest.mark.long
def test_options_are_settings_of_the_run(tmp_path: Path) -> None:
    given = [
        "--learning-rate",
        "0.002",
        "--batch-size",
        "2",
        "--max-seq-len",
        "32",
        "--threads",
        "1",
    ]
    few = options(seq_len=None, global_batch_tokens=None, micro_batch_tokens=None, max_steps=1)
    done = finish("gpt", *few, *given, "-o", str(tmp_path / "run"))
    assert done.returncode == 0, done.stderr
    settings = yaml.safe_load((tmp_path / "run/config.yaml").read_text())
    assert settings["optimizer"]["learning_rate"] == 0.002
    assert settings["seq_len"] == 32
    assert settings["global_batch_tokens"] == 2 * 32
