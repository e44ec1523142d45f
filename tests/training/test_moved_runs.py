"""A run resumes from any directory, and says what remains of it on a full disk."""

import html
import shlex
import shutil
from pathlib import Path

import pytest

from tests.distillation.making import DISTILL_SMALL, pretrained
from tests.training.runs import EVAL_TEXT, TEXT, assert_same, tree
from zoo.distillation.runs import DISTILL
from zoo.training.config.overrides import deep_merge
from zoo.training.distributed.context import DistContext
from zoo.training.entrypoints import PRETRAIN, RunKind, train
from zoo.training.logging.report import write_report
from zoo.training.state.checkpoints import list_checkpoints
from zoo.training.state.location import resume_command

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
    settings = deep_merge(student, DISTILL_SMALL, DATA)
    train(settings, {}, Path("run"), DistContext.initialize("cpu"), kind=DISTILL)
    assert_same(began / "run", resume_moved(DISTILL, began, monkeypatch))


def test_the_command_of_the_report_works_elsewhere(began: Path) -> None:
    train(tree("gpt", **DATA, max_steps=1), {}, Path("run"), DistContext.initialize("cpu"))
    page = write_report(began / "run").read_text()
    assert f"cd {shlex.quote(str(began))} && zoo " in html.unescape(page)


def test_commands_are_quoted_for_the_shell() -> None:
    path = Path("it's a; run")
    assert shlex.split(resume_command("distill", path)) == ["zoo", "distill", "--resume", str(path)]
