"""A run resumes from any directory, and says what remains of it on a full disk."""

import html
import json
import logging
import shlex
import shutil
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner

from tests.distillation.making import DISTILL_SMALL, narrow, pretrained
from tests.finetuning.making import labelled, settings
from tests.training.runs import EVAL_TEXT, TEXT, assert_same, tree
from zoo.checkpoint.digests import update_manifest
from zoo.cli import cli
from zoo.distillation.runs import DistillRun
from zoo.errors import SourceError, UsageError
from zoo.finetuning.runs import FineTuneRun
from zoo.training.config.overrides import deep_merge
from zoo.training.distributed.context import DistContext
from zoo.training.logging.report import write_report
from zoo.training.run import PretrainRun, Run
from zoo.training.state.location import resume_command
from zoo.training.state.progress import list_checkpoints
from zoo.training.state.verify import verify_run

pytestmark = pytest.mark.usefixtures("shared_home")
DATA = {"data": {"paths": ["a text.txt"], "eval_paths": ["held out/b.txt"]}}
# Files that name the files of the data, which have moved.
NAMES_DATA = ("model/zoo.json", "mistakes.json", "report.html")


@pytest.fixture
def began(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Directory in which a run begins, with its texts and a teacher."""
    place = tmp_path / "where it's begun"
    (place / "held out").mkdir(parents=True)
    shutil.copyfile(TEXT, place / "a text.txt")
    shutil.copyfile(EVAL_TEXT, place / "held out/b.txt")
    monkeypatch.chdir(place)
    return place


def cut_off(run: Path, step: int) -> Path:
    """Remove the model of a run, and its checkpoints after a step."""
    for number, path in list_checkpoints(run).items():
        if number > step:
            shutil.rmtree(path)
    shutil.rmtree(run / "model")
    return run


def resume_moved(kind: type[Run], began: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Move a copy of ``run`` that lacks its last steps, and resume it from a third directory."""
    moved, third = began.parent / "moved/copy", began.parent / "third"
    third.mkdir()
    shutil.copytree(began / "run", moved)
    cut_off(moved, 6)
    monkeypatch.chdir(third)
    dist = DistContext.initialize("cpu")
    _, model = kind({}, dist).resume(Path("../moved/copy"))
    assert model == Path("../moved/copy/model")
    assert Path.cwd() == third and not list(third.iterdir())
    return moved


@pytest.mark.long
def test_pretraining(began: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    PretrainRun(tree("gpt", **DATA), DistContext.initialize("cpu"), Path("run")).start()
    assert_same(began / "run", resume_moved(PretrainRun, began, monkeypatch))


@pytest.mark.long  # the directory of a run is found by the same code for all kinds
def test_distillation(began: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(pretrained("gpt"), began / "teacher")
    student = {"distillation": {"teachers": ["./teacher"]}, "student": narrow("gpt")}
    values = deep_merge(student, DISTILL_SMALL, DATA)
    DistillRun(values, DistContext.initialize("cpu"), Path("run")).start()
    assert_same(began / "run", resume_moved(DistillRun, began, monkeypatch))


@pytest.mark.long
def test_scores_of_a_student_whose_teacher_and_texts_have_moved(began: Path) -> None:
    shutil.copytree(pretrained("gpt"), began / "teacher")
    student = {"distillation": {"teachers": ["./teacher"]}, "student": narrow("gpt")}
    values = deep_merge(student, DISTILL_SMALL, DATA)
    DistillRun(values, DistContext.initialize("cpu"), Path("run")).start()
    cut_off(began / "run", 6)
    (began / "teacher").rename(began / "mentor")
    (began / "a text.txt").rename(began / "b.txt")
    options = [
        "--teacher",
        "mentor",
        "--train",
        "b.txt",
        "--score-backend",
        "cpu",
        "--device",
        "cpu",
    ]
    CliRunner().invoke(
        cli, ["distill", "--resume", "run", *options], catch_exceptions=False, standalone_mode=False
    )
    scores = json.loads((began / "run" / "scores.json").read_text())
    assert [score["reference"] for score in scores["teachers"]] == [str(began / "mentor")]


def test_the_command_of_the_report_works_elsewhere(began: Path) -> None:
    PretrainRun(
        tree("gpt", **DATA, max_steps=1), DistContext.initialize("cpu"), Path("run")
    ).start()
    page = write_report(began / "run").read_text()
    assert f"cd {shlex.quote(str(began))} && zoo" in html.unescape(page)


def test_commands_are_quoted_for_the_shell() -> None:
    path = Path("it's a; run")
    assert shlex.split(resume_command("distill", path)) == ["zoo", "distill", "--resume", str(path)]


@pytest.mark.long  # see test_pretraining
def test_fine_tuning(began: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    labelled(began / "table.tsv")
    values = settings("bert", Path("table.tsv"), save_total_limit=9, vocab_size=60)
    FineTuneRun(values, DistContext.initialize("cpu"), Path("run")).start()
    assert_same(began / "run", resume_moved(FineTuneRun, began, monkeypatch))


def test_data_that_has_moved_is_named(
    began: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """With the same contents it is accepted, also where the corpus has to be built again."""
    here = DistContext.initialize("cpu")
    PretrainRun(tree("gpt", **DATA), here, Path("run")).start()
    whole = began / "whole"
    shutil.copytree(began / "run", whole)
    run = cut_off(began / "run", 6)
    (began / "a text.txt").rename(began / "b.txt")
    with pytest.raises(SourceError, match=r"if a text\.txt has moved, name it by --train") as error:
        PretrainRun({}, here).resume(run)
    assert "\n" not in str(error.value)
    (began / "c.txt").write_text("Once upon a time there was a fox.\n\n" * 400)
    with pytest.raises(UsageError, match=r"is not the one that .*run began with"):
        PretrainRun({}, here, overrides={"data": {"paths": ["c.txt"]}}).resume(run)
    with pytest.raises(UsageError, match=r"other settings: data\.tokenizer"):
        PretrainRun({}, here, overrides={"data": {"tokenizer": "train"}}).resume(run)
    monkeypatch.setenv("ZOO_HOME", str(began / "another home"))
    with caplog.at_level(logging.INFO, "zoo"):
        PretrainRun({}, here, overrides={"data": {"paths": ["b.txt"]}}).resume(run)
    assert f"data.paths has moved: a text.txt, now {began / 'b.txt'}" in caplog.text
    assert_same(whole, run)
    assert (whole / "config.yaml").read_bytes() == (run / "config.yaml").read_bytes()


@pytest.mark.long  # by the code that names a corpus
def test_a_table_that_has_moved_is_named(began: Path) -> None:
    labelled(began / "table.tsv")
    values = settings("bert", Path("table.tsv"), save_total_limit=9, vocab_size=60)
    here = DistContext.initialize("cpu")
    FineTuneRun(values, here, Path("run")).start()
    shutil.copytree(began / "run", began / "whole")
    run = cut_off(began / "run", 6)
    (began / "table.tsv").rename(began / "moved.tsv")
    with pytest.raises(SourceError, match=r"if table\.tsv has moved, name it by --train"):
        FineTuneRun({}, here).resume(run)
    FineTuneRun({}, here, overrides={"data": {"train": ["moved.tsv"]}}).resume(run)
    assert_same(began / "whole", run, ignore=NAMES_DATA)


def test_a_directory_that_is_gone_is_named(
    began: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    here = DistContext.initialize("cpu")
    PretrainRun(tree("gpt", **DATA, max_steps=2), here, Path("run")).start()
    elsewhere = began.parent / "elsewhere"
    monkeypatch.chdir(began.parent)
    began.rename(elsewhere)
    monkeypatch.chdir(elsewhere)
    with caplog.at_level(logging.INFO, "zoo"):
        PretrainRun({}, here).resume(Path("run"))
    assert f"run began in {began}, which is gone: a text.txt, held out/b.txt is from" in caplog.text


@pytest.mark.long
@pytest.mark.parametrize("recipe", ["minilm-assistant", "sequence"])
def test_a_later_stage_goes_on_where_the_directory_has_moved(
    began: Path, monkeypatch: pytest.MonkeyPatch, recipe: str
) -> None:
    """Its teacher is the model of the stage before, or its data what the teacher wrote."""
    here, often = DistContext.initialize("cpu"), {"save_steps": 1, "save_total_limit": 9}
    few = {"settings": {"max_steps": 2, "eval_steps": 2, "keep_optimizer": True, **often}}
    shutil.copytree(pretrained("bert" if recipe == "minilm-assistant" else "gpt"), "teacher")
    if recipe == "minilm-assistant":
        stages: tuple[str, ...] = ("assistant", "student")
        values = deep_merge(DISTILL_SMALL, DATA)
        student = {"name": "bert", "num_layers": 1, "hidden_size": 32, "intermediate_size": 64}
    else:
        labelled(began / "t.jsonl")
        stages, student = ("fine-tuning",), {"name": "gpt", "num_layers": 1}
        data = {"train": ["t.jsonl"], "text": "label", "label": "text"}
        values = {"task": "causal-lm", "data": data}
        file = {"data": "labelled", "targets": {"num_beams": 1, "max_new_tokens": 4}}
        Path("sequence.yaml").write_text(
            json.dumps({**file, "stages": {"fine-tuning": {"objective_weight": 1.0}}})
        )
        recipe = "sequence.yaml"
    distillation = {
        "teachers": ["./teacher"],
        "recipe": recipe,
        "stages": dict.fromkeys(stages, few),
    }
    values = deep_merge(values, {"student": student, "distillation": distillation})
    DistillRun(values, here, Path("run")).start()
    last = began.parent / "moved" / stages[-1]
    shutil.copytree("run", "whole", symlinks=True)
    Path("run").rename(began.parent / "moved")
    (began.parent / "moved/model").unlink()
    cut_off(last, 1)
    monkeypatch.chdir(began.parent)
    DistillRun({}, here).resume(Path("moved"))
    assert_same(began / "whole" / stages[-1], last, ignore=NAMES_DATA)


@pytest.mark.long
def test_another_model_in_the_run_is_found(began: Path, caplog: pytest.LogCaptureFixture) -> None:
    here = DistContext.initialize("cpu")
    for name, seed in (("run", 0), ("other", 1)):
        PretrainRun(tree("gpt", **DATA, max_steps=1, seed=seed), here, Path(name)).start()
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
        PretrainRun({}, here).resume(run)
        shutil.rmtree(model)
        PretrainRun({}, here).resume(run)
    assert f"{run} is already finished, at step 1" in caplog.text
    assert f"{run} is resumed at step 1 of 1" in caplog.text
