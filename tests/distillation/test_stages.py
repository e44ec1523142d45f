"""Recipes of several stages."""

import json
import logging
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from safetensors.torch import load_file
from torch.nn import functional as F

from tests.distillation.making import pretrained, task_settings, tune_teacher, views
from tests.distillation.making import settings as text_settings
from tests.finetuning.making import SETTINGS, labelled
from tests.training.runs import assert_same, cut, records
from zoo.checkpoint import load_checkpoint
from zoo.distillation.config.build import requested_recipe
from zoo.distillation.runs import DistillationStages, DistillRun, stage_settings
from zoo.distillation.scoring.seeds import summarize_seeds
from zoo.errors import UsageError
from zoo.training.config.overrides import deep_merge
from zoo.training.distributed.context import DistContext
from zoo.training.seeds import resume_seeds, train_seeds
from zoo.training.state.progress import seed_directories

TASK = "text-classification"
SHORT = {"max_steps": 4, "eval_steps": 2}
STAGES = {  # short ones
    name: {"settings": {**SHORT, "save_steps": 1, "save_total_limit": 9, "keep_optimizer": True}}
    for name in ("intermediate", "prediction")
}


@pytest.fixture
def tree(tmp_path: Path) -> dict[str, Any]:
    file = labelled(tmp_path / "t.jsonl")
    teacher = tune_teacher(tmp_path / "teacher", TASK, file, config={"num_layers": 4})
    recipe = {"recipe": "tinybert-task", "stages": STAGES}
    values: dict[str, Any] = task_settings([teacher], "bert", TASK, file, distillation=recipe)
    for name in (*SETTINGS, "max_steps", "eval_steps"):  # those of the recipe, not of the tests
        values.pop(name, None)
    values["student"] |= {"hidden_size": 48, "intermediate_size": 96}
    return values | {"preset": "default", "logging_steps": 1, "micro_batch_size": 8}


def run_stages(path: Path, tree: dict[str, Any]) -> Path:
    DistillRun(tree, DistContext.initialize("cpu"), path).start()
    return path


def test_stages_follow_each_other_and_resume_exactly(tree: dict[str, Any], tmp_path: Path) -> None:
    whole = run_stages(tmp_path / "whole", tree)
    first, last = whole / "intermediate", whole / "prediction"
    assert set(records(first, "validation")[-1]["losses"]) == {"attention", "hidden"}
    assert set(records(last, "validation")[-1]["losses"]) == {"kl"}
    rates = [[r["learning_rate"] for r in records(run)] for run in (first, last)]
    assert rates[0] == [5e-5] * 4
    assert max(rates[1]) <= 3e-5
    assert rates[1] != [rates[1][0]] * 4
    begin, end = (load_file(p / "model" / "model.safetensors") for p in (first, last))
    started = yaml.safe_load((last / "config.yaml").read_text())["init_from"]["model"]
    assert Path(started) == first / "model"
    assert begin.keys() == end.keys()
    assert (whole / "model" / "zoo.json").read_bytes() == (last / "model/zoo.json").read_bytes()
    assert load_checkpoint(whole / "model").head_name == "sequence-classification"
    for stage in ("prediction", "intermediate"):
        broken = tmp_path / f"broken-{stage}"
        shutil.copytree(whole, broken, symlinks=True)
        (broken / "model").unlink()
        cut(broken / stage, 1)
        if stage == "intermediate":
            shutil.rmtree(broken / "prediction")
        for suffix in ("", ".lock"):  # of a process that was killed at the end of a stage
            (broken / "intermediate" / f".report.html.zoo-0123abcd{suffix}").touch()
        (broken / "intermediate" / "final.json").unlink()
        run, _ = DistillRun({}, DistContext.initialize("cpu")).resume(broken)
        assert run == broken / "prediction"
        assert [*broken.rglob("*.zoo-*")] == []
        finals = [(p / "intermediate" / "final.json").read_bytes() for p in (whole, broken)]
        assert finals[0] == finals[1]
        for name in ("intermediate", "prediction"):
            weights = [p / name / "model/model.safetensors" for p in (whole, broken)]
            assert weights[0].read_bytes() == weights[1].read_bytes()
        assert_same(whole / stage, broken / stage)


# The test above resumes stages, and tests/training stops runs after a time.
@pytest.mark.long
def test_a_stage_that_stops_after_a_time_is_resumed_before_the_next(
    tree: dict[str, Any], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    here = DistContext.initialize("cpu")
    whole = run_stages(tmp_path / "whole", tree)
    path = tmp_path / "run"
    stopped = DistillRun(tree, here, path, max_time=1e-9).start()
    assert (stopped.run, stopped.model) == (path / "intermediate", path / "intermediate/model")
    assert not (path / "prediction").exists() and not (path / "model").exists()
    again = DistillRun({}, here, max_time=1e-9).resume(path)
    assert again == stopped
    caplog.clear()
    with caplog.at_level(logging.INFO, "zoo"):
        assert DistillRun({}, here).resume(path) == (path / "prediction", path / "model")
    stages = [line for line in caplog.messages if line.startswith("stage ")]
    assert stages == ["stage 1 of 2: intermediate", "stage 2 of 2: prediction"]
    assert_same(whole / "intermediate", path / "intermediate")
    for name in ("metrics.jsonl", "model/model.safetensors"):  # settings name the stage before
        files = [run / "prediction" / name for run in (whole, path)]
        assert files[0].read_bytes() == files[1].read_bytes()


def test_the_terms_are_those_of_the_released_code(tree: dict[str, Any], tmp_path: Path) -> None:
    """task_distill.py: mean squared errors, and -(softmax(t / T) log_softmax(s / T)).mean()."""
    values = deep_merge(tree, {"distillation": {"stage": "intermediate"}})
    objective, outputs, batch = views(values, tmp_path / "first")
    sums = objective.loss(outputs, batch.tensors).sums
    (view,), student = outputs.teachers, outputs.student
    project = outputs.module.projections["hidden"]
    real = batch.tensors["attention_mask"].bool()
    hidden = sum(
        F.mse_loss(project(student.captured.hidden[a])[real], view.captured.hidden[b][real])
        for a, b in ((0, 0), (1, 2), (2, 4))
    )
    torch.testing.assert_close(sums["hidden"] / batch.counts["hidden"], hidden)
    pairs = (real[:, :, None] & real[:, None, :])[:, None].expand(-1, 2, -1, -1)
    attention = sum(
        F.mse_loss(
            student.captured.attention_scores[a][pairs], view.captured.attention_scores[b][pairs]
        )
        for a, b in ((0, 1), (1, 3))
    )
    torch.testing.assert_close(sums["attention"] / batch.counts["attention"], attention)
    change = {"terms": {"kl": {"temperature": 3.0}}}
    stages = {"distillation": {"stage": "prediction", "stages": {"prediction": change}}}
    objective, outputs, batch = views(deep_merge(tree, stages), tmp_path / "second")
    (total,) = objective.loss(outputs, batch.tensors).sums.values()
    both = (outputs.student, *outputs.teachers)
    mine, other = (view.outputs.logits[TASK].double() / 3 for view in both)
    soft = (-other.softmax(-1) * mine.log_softmax(-1)).mean()
    entropy = (-other.softmax(-1) * other.log_softmax(-1)).mean()
    # in float64: the divergence is a small difference of two large numbers
    actual = total.double() / batch.counts["kl"]
    torch.testing.assert_close(actual, soft - entropy, rtol=1e-4, atol=1e-8)


@pytest.mark.by_default("changes0")
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"stages": {"predicton": {}}}, "has no stage 'predicton'"),
        ({"stages": {"prediction": {"wieght": 1}}}, "wieght"),
        ({"stage": "third"}, "and not 'third'"),
        (
            {"terms": {"attention": {"weight": 2.0}}},
            "terms.attention has no kind",
        ),  # not of the second stage
    ],
)
def test_what_does_not_fit(
    tree: dict[str, Any], changes: dict[str, Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match=message):
        run_stages(tmp_path / "run", deep_merge(tree, {"distillation": changes}))
    assert not (tmp_path / "run").exists()


def test_models_that_do_not_fit_leave_no_directory(tree: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="compares heads"):
        run_stages(tmp_path / "run", deep_merge(tree, {"student": {"num_heads": 4}}))
    assert not (tmp_path / "run").exists()


@pytest.mark.long
def test_initial_layers_are_of_the_first_stage(tree: dict[str, Any], tmp_path: Path) -> None:
    """A stage that goes on with a student does not overwrite it with layers of the teacher."""
    copied = deep_merge(tree, {"distillation": {"init_layers": "first"}})
    recipe = requested_recipe(copied, offline=True)
    record = DistillationStages(stages=list(recipe.stages), settings=copied, recipe=recipe)
    settings = [stage_settings(tmp_path, record, n)["distillation"] for n in range(2)]
    assert [stage["init_layers"] for stage in settings] == ["first", None]


@pytest.mark.long
def test_an_assistant_teaches_the_student_of_each_seed(tmp_path: Path) -> None:
    """It has the teacher's layers and the student's width; an interrupted seed goes on."""
    teacher, path = pretrained("bert"), tmp_path / "seeds"
    short = {name: {"settings": {"max_steps": 2}} for name in ("assistant", "student")}
    distillation = {"recipe": "minilm-assistant", "stages": short}
    tree = text_settings(teacher, "bert", distillation=distillation)
    tree["student"] |= {"num_layers": 1, "hidden_size": 32, "intermediate_size": 64}
    dist = DistContext.initialize("cpu")
    train_seeds(DistillRun(tree, dist, path), 2)
    runs = [DistillRun.last_stage(run) for run in seed_directories(path)]
    assert [str(run.relative_to(path)) for run in runs] == ["seed-0/student", "seed-1/student"]
    assistant, student = path / "seed-1" / "assistant", runs[1]
    shapes = [load_checkpoint(run / "model").config for run in (assistant, student)]
    assert [(c.num_layers, c.hidden_size) for c in shapes] == [(2, 32), (1, 32)]  # type: ignore[attr-defined]
    teachers = [
        json.loads((run / "run.json").read_text())["teachers"] for run in (assistant, student)
    ]
    assert [t[0]["reference"] for t in teachers] == [str(teacher), str(assistant / "model")]
    summarize_seeds(path, runs, [])
    summary = json.loads((path / "summary.json").read_text())
    assert summary["runs"].keys() == {"seed-0/student", "seed-1/student"}
    losses = [[r["loss"] for r in records(run)] for run in runs]
    assert losses[0] != losses[1]
    shutil.rmtree(student)
    (path / "seed-1" / "model").unlink()
    left = [path / ".seed-1.zoo-01234567.lock", tmp_path / ".seeds.zoo-01234567.lock"]
    for lock in left:  # the process was killed just after it had created the directory
        lock.touch()
    resume_seeds(DistillRun({}, dist), path)
    assert [r["loss"] for r in records(student)] == losses[1]
    assert not [lock for lock in left if lock.exists()]


def test_an_assistant_of_a_size_is_refused(tmp_path: Path) -> None:
    tree = text_settings(pretrained("bert"), "tiny", distillation={"recipe": "minilm-assistant"})
    with pytest.raises(
        UsageError, match="stage assistant has a different number of layers than tiny"
    ):
        run_stages(tmp_path / "run", tree)
