"""A run resumes from any directory, and says what remains of it on a full disk."""

import html
import logging
import shlex
import shutil
from pathlib import Path

import msgspec
import pytest

from tests.distillation.making import DISTILL_SMALL, pretrained
from tests.finetune.making import labelled, settings
from tests.training.runs import EVAL_TEXT, TEXT, assert_same, tree
from zoo.checkpoint.digests import update_manifest
from zoo.distillation.runs import DISTILL
from zoo.finetune.runs import FINETUNE
from zoo.training.config.overrides import deep_merge
from zoo.training.distributed.context import DistContext
from zoo.training.entrypoints import PRETRAIN, RunKind, train
from zoo.training.logging.report import write_report
from zoo.training.state.checkpoints import list_checkpoints
from zoo.training.state.location import resume_command
from zoo.training.state.verify import verify_run

pytestmark = pytest.mark.usefixtures("shared_home")
DATA = {"data": {"paths": ["a text.txt"], "eval_paths": ["held out/b.txt"]}}


@pytest.fixture
def began(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Directory in which a run begins, with its texts and a teacher."""
    place = tmp_path / "where it's begun"
    (place / "held out").mkdir(parents=True)
    shutil.copyfile(TEXT, place / "a text.txt")
    shutil.copyfile(EVAL_TEXT, place / "held out/b.txt")
    monkeypatch.chdir(place)
    return place


def resume_moved(kind: RunKind, began: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Move a copy of ``run`` that lacks its last steps, and resume it from a third directory."""
    moved, third = began.parent / "moved/copy", began.parent / "third"
    third.mkdir()
    shutil.copytree(began / "run", moved)
    for step, path in list_checkpoints(moved).items():
        if step > 6:
            shutil.rmtree(path)
    shutil.rmtree(moved / "model")
    monkeypatch.chdir(third)
    dist = DistContext.initialize("cpu")
    _, model = kind.resume(Path("../moved/copy"), {}, {}, dist)
    assert model == Path("../moved/copy/model")
    assert Path.cwd() == third and not list(third.iterdir())
    return moved


def test_pretraining(began: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    train(tree("gpt", **DATA), {}, Path("run"), DistContext.initialize("cpu"))
    assert_same(began / "run", resume_moved(PRETRAIN, began, monkeypatch))


def test_distillation(began: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(pretrained("gpt"), began / "teacher")
    student = {"distillation": {"teachers": ["./teacher"]}, "student": {"name": "gpt"}}
    values = deep_merge(student, DISTILL_SMALL, DATA)
    train(values, {}, Path("run"), DistContext.initialize("cpu"), kind=DISTILL)
    assert_same(began / "run", resume_moved(DISTILL, began, monkeypatch))


def test_the_command_of_the_report_works_elsewhere(began: Path) -> None:
    train(tree("gpt", **DATA, max_steps=1), {}, Path("run"), DistContext.initialize("cpu"))
    page = write_report(began / "run").read_text()
    assert f"cd {shlex.quote(str(began))} && zoo" in html.unescape(page)


def test_commands_are_quoted_for_the_shell() -> None:
    path = Path("it's a; run")
    assert shlex.split(resume_command("distill", path)) == ["zoo", "distill", "--resume", str(path)]


def test_fine_tuning(began: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    labelled(began / "table.tsv")
    values = settings("bert", Path("table.tsv"), save_total_limit=9, vocab_size=60)
    train(values, {}, Path("run"), DistContext.initialize("cpu"), kind=FINETUNE)
    assert_same(began / "run", resume_moved(FINETUNE, began, monkeypatch))


def test_another_model_in_the_run_is_found(began: Path, caplog: pytest.LogCaptureFixture) -> None:
    here = DistContext.initialize("cpu")
    for name, seed in (("run", 0), ("other", 1)):
        train(tree("gpt", **DATA, max_steps=1, seed=seed), {}, Path(name), here)
    run, model = began / "run", began / "run/model"
    update_manifest(model, lambda manifest: msgspec.structs.replace(manifest, training={}))
    assert [check.outcome for check in verify_run(run) if check.outcome != "ok"] == []
    shutil.rmtree(model)
    shutil.copytree(began / "other/model", model)
    failed = [check for check in verify_run(run) if check.outcome != "ok"]
    assert [check.name for check in failed] == ["model"]
    assert "is not the model that the run wrote" in failed[0].detail
    (run / "final.json").unlink()  # as in runs of earlier versions
    assert [check.outcome for check in verify_run(run) if check.outcome != "ok"] == []
    with caplog.at_level(logging.INFO, "zoo"):
        PRETRAIN.resume(run, {}, {}, here)
        shutil.rmtree(model)
        PRETRAIN.resume(run, {}, {}, here)
    assert f"{run} is already finished, at step 1" in caplog.text
    assert f"{run} is resumed at step 1 of 1" in caplog.text
