"""A run that continues another one ends like a run that was that long from the beginning."""

import json
import logging
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from click.testing import CliRunner

from tests.distillation.making import DISTILL_SMALL, narrow, pretrained
from tests.finetuning.making import finetune, labelled
from tests.finetuning.making import settings as table_settings
from tests.training.runs import assert_same, flip, records, run_training, tensors, tree
from zoo.cli.training.pretrain import command as pretrain
from zoo.distillation.runs import DistillRun
from zoo.errors import SourceError, UsageError
from zoo.finetuning.runs import FineTuneRun
from zoo.io.digests.files import compute_blake3
from zoo.training.config.overrides import deep_merge
from zoo.training.distributed.context import DistContext
from zoo.training.run import PretrainRun, Run
from zoo.training.seeds import train_seeds
from zoo.training.state.progress import list_checkpoints
from zoo.training.state.run_manifest import read_manifest
from zoo.training.state.verify import verify_run

pytestmark = pytest.mark.usefixtures("shared_home")
CONSTANT = {"lr_scheduler": {"name": "constant", "warmup_steps": 2, "min_lr_ratio": 0.0}}
KEEP: dict[str, Any] = {"keep_optimizer": True, "save_steps": 1, "save_total_limit": 9}
SHORT = {**CONSTANT, "max_steps": 8, "ema_decay": 0.9}  # of runs of 12 steps
PARENT = ("run.json", "report.html")  # name the parent
EARLIER = ("checkpoints/step-0000000?/*",)  # are not copied, or without the optimizer
HERE = DistContext(0, 1, DistContext.initialize("cpu").device)


def go_on(parent: Path, path: Path, kind: type[Run] = PretrainRun, **given: Any) -> Path:
    """Continue a run with other settings."""
    options = {"reset_optimizer": given.pop("reset_optimizer", False)}
    run, model = kind({}, HERE, path, given).continue_from(parent, **options)
    assert model == path / "model"
    return run


def weights(run: Path) -> bytes:
    return (run / "model" / "model.safetensors").read_bytes()


@pytest.fixture(scope="module")
def parent(tmp_path_factory: pytest.TempPathFactory, training_home: Path) -> Path:
    """A run of 8 steps, whose best evaluation is the last."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ZOO_HOME", str(training_home))
        return run_training(tmp_path_factory.mktemp("parent") / "run", "gpt", **SHORT)


def test_a_longer_run_is_that_of_all_steps(
    parent: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Weights, average, optimizer and log, to the bit; the parent stays as it is."""
    before = {p: p.read_bytes() for p in parent.rglob("*") if p.is_file()}
    with caplog.at_level(logging.INFO, "zoo"):
        child = go_on(parent, tmp_path / "child", max_steps=12)
    assert f"{child} continues {parent} at step 8 of 12" in caplog.text
    whole = run_training(tmp_path / "whole", "gpt", **SHORT | {"max_steps": 12})
    assert_same(whole, child, ignore=PARENT)
    assert {p: p.read_bytes() for p in before} == before
    record = read_manifest(child).parent
    assert record is not None
    assert (record.path, record.step) == (str(parent), 8)
    assert record.digest == compute_blake3(parent / "run.json")
    assert [check.outcome for check in verify_run(child) if check.outcome != "ok"] == []
    shutil.rmtree(child / "checkpoints" / "step-00000012")
    shutil.rmtree(child / "model")
    PretrainRun({}, HERE).resume(child)  # as any run
    assert_same(tmp_path / "whole", child, ignore=PARENT)


# Its two parts, resuming and continuing, are compared one by one in other tests.
@pytest.mark.long
def test_an_interrupted_run_and_a_child_are_continued(parent: Path, tmp_path: Path) -> None:
    first = tmp_path / "first"
    shutil.copytree(parent, first)
    shutil.rmtree(list_checkpoints(first)[8])
    shutil.rmtree(first / "model")
    second = go_on(first, tmp_path / "second", max_steps=9)
    third = go_on(second, tmp_path / "third", max_steps=12)
    assert [r["step"] for r in records(third)] == list(range(1, 13))
    whole = run_training(tmp_path / "whole", "gpt", **SHORT | {"max_steps": 12})
    assert weights(whole) == weights(third)  # the second one was evaluated at its last step as well


@pytest.mark.long
def test_shorter_rows_last_as_long_as_in_the_parent(tmp_path: Path) -> None:
    def warmup(fraction: float) -> dict[str, Any]:
        rows = {"seq_len": 16, "fraction": fraction, "keep": "tokens"}
        return {**CONSTANT, "seq_len_warmup": rows, "save_total_limit": 9}

    first = run_training(tmp_path / "first", "gpt", **warmup(0.75) | {"max_steps": 8})
    whole = run_training(tmp_path / "whole", "gpt", **warmup(0.5))  # 6 steps as well
    child = go_on(first, tmp_path / "child", max_steps=12)
    assert_same(whole, child, ignore=PARENT + EARLIER)
    for step in (6, 8):
        shutil.rmtree(list_checkpoints(first)[step])
    early = go_on(first, tmp_path / "early", max_steps=12)  # from step 3
    assert_same(whole, early, ignore=PARENT + EARLIER)
    with pytest.raises(UsageError, match=r"first 6 steps of .* have shorter rows"):
        go_on(first, tmp_path / "none", max_steps=5)


@pytest.mark.long
def test_another_batch_size_begins_with_the_next_row(parent: Path, tmp_path: Path) -> None:
    """The rows of an epoch are read once, whatever the size of a batch is."""
    child = go_on(parent, tmp_path / "child", max_steps=10, global_batch_tokens=512)
    record = read_manifest(child).parent
    assert record is not None and record.rows == 8 * 4
    grandchild = go_on(child, tmp_path / "grandchild", max_steps=12, global_batch_tokens=128)
    record = read_manifest(grandchild).parent
    assert record is not None and record.rows == 8 * 4 + 2 * 8
    tokens = [r["tokens"] for r in records(grandchild)]
    assert tokens[7:] == [8 * 256, 8 * 256 + 512, 8 * 256 + 1024, *(3072 + 128, 3072 + 256)]


def test_rows_follow_those_that_were_read() -> None:
    from tests.training.runs import small
    from zoo.training.setup import pretrain_setup

    setup = pretrain_setup(small("gpt"))
    loader, other = (
        setup.train_dataloader(HERE),
        pretrain_setup(small("gpt", global_batch_tokens=192)),
    )
    smaller = other.train_dataloader(HERE)
    smaller.start_at(6, 24)  # 6 steps of 4 rows
    rows = [loader.index(step, place) for step in range(12) for place in range(4)]
    assert [smaller.index(step, p) for step in range(6, 14) for p in range(3)] == rows[24:48]
    loader.close()
    smaller.close()


@pytest.mark.long
def test_fine_tuning_goes_on_with_the_best_evaluation(tmp_path: Path) -> None:
    file = labelled(tmp_path / "t.jsonl")
    values = table_settings("bert", file, **CONSTANT, vocab_size=60, save_total_limit=1)
    whole = finetune(tmp_path / "whole", values)
    first = finetune(tmp_path / "first", values | {"max_steps": 8})
    child = go_on(first, tmp_path / "child", FineTuneRun, max_steps=12)
    assert_same(whole, child, ignore=PARENT + EARLIER)
    state = json.loads((max(list_checkpoints(child).values()) / "state.json").read_bytes())
    assert (
        state["best"]
        == json.loads((max(list_checkpoints(whole).values()) / "state.json").read_bytes())["best"]
    )
    epochs = go_on(first, tmp_path / "epochs", FineTuneRun, num_train_epochs=3.0)
    rows = read_manifest(first).data or {}
    steps = -(-3 * rows["rows"]["train"] // 8)
    assert yaml.safe_load((epochs / "config.yaml").read_text())["max_steps"] == steps
    with pytest.raises(UsageError, match="task cannot change"):
        go_on(first, tmp_path / "other", FineTuneRun, task="regression")
    with pytest.raises(UsageError, match=r"freeze_layers cannot change .* --reset-optimizer"):
        go_on(first, tmp_path / "other", FineTuneRun, freeze_layers=1)
    go_on(
        first, tmp_path / "frozen", FineTuneRun, max_steps=9, freeze_layers=1, reset_optimizer=True
    )


def test_a_run_that_ended_early_is_not_ended_at_once(tmp_path: Path) -> None:
    patient = {"early_stopping_patience": 1, "eval_steps": 1, "save_steps": 1}
    still = {"optimizer": {"learning_rate": 1e-12}, "data": {"eval_fraction": 0.5}}
    values = table_settings("bert", labelled(tmp_path / "t.jsonl"), **patient, vocab_size=60)
    first = finetune(tmp_path / "first", deep_merge(values, still))
    steps = max(list_checkpoints(first))
    assert steps < 12
    with pytest.raises(UsageError, match="early_stopping_patience=null"):
        go_on(first, tmp_path / "child", FineTuneRun)
    child = go_on(
        first, tmp_path / "child", FineTuneRun, early_stopping_patience=None, max_steps=steps + 1
    )
    assert max(list_checkpoints(child)) == steps + 1


@pytest.mark.long
def test_distillation_goes_on(tmp_path: Path) -> None:
    values = deep_merge(
        {"distillation": {"teachers": [str(pretrained("gpt"))]}, "student": narrow("gpt")},
        DISTILL_SMALL,
        CONSTANT,
    )
    for name, steps in (("whole", 12), ("first", 8)):
        DistillRun(values | {"max_steps": steps}, HERE, tmp_path / name).start()
    child = go_on(tmp_path / "first", tmp_path / "child", DistillRun, max_steps=12)
    assert_same(tmp_path / "whole", child, ignore=PARENT)
    with pytest.raises(UsageError, match="with its own student"):
        go_on(tmp_path / "first", tmp_path / "other", DistillRun, student={"name": "bert"})
    with pytest.raises(UsageError, match=r"distillation\.terms\.kl\.weight cannot change"):
        terms = {"terms": {"kl": {"weight": 2.0}}}
        go_on(tmp_path / "first", tmp_path / "other", DistillRun, distillation=terms)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, r"has done 8 steps, and this run would end at step 8; --max-steps is the total"),
        ({"seed": 1}, r"seed cannot change where .*run is continued: 0 and 1"),
        ({"size": "mini"}, "size cannot change"),
        ({"family": "bert"}, "family cannot change"),
        ({"objective": "masked-lm"}, "objective cannot change"),
        ({"seq_len": 32}, "seq_len cannot change"),
        ({"vocab_size": 300}, "vocab_size cannot change"),
        ({"config": {"num_layers": 1}}, "config.num_layers cannot change"),
        ({"optimizer": {"name": "lamb"}}, r"optimizer.name cannot .*; --reset-optimizer begins"),
        ({"ema_decay": None}, "ema_decay cannot change"),
        ({"max_step": 1}, "no setting max_step"),
        ({"optimizer": {"learning_rate": -1.0}}, "learning_rate is -1.0"),
    ],
)
def test_what_the_state_does_not_go_with_is_refused(
    parent: Path, tmp_path: Path, given: dict[str, Any], message: str
) -> None:
    with pytest.raises(UsageError, match=message) as caught:
        go_on(parent, tmp_path / "child", **given)
    assert "\n" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_other_data_is_refused_and_moved_data_is_not(
    parent: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text, other = tmp_path / "text.txt", tmp_path / "other.txt"
    text.write_text("Once upon a time there was a fox.\n\n" * 400)
    other.write_text("Once upon a time there was a hare.\n\n" * 400)
    monkeypatch.chdir(tmp_path)
    data = {"paths": ["text.txt"], "eval_paths": ["text.txt"]}
    first = run_training(Path("first"), "gpt", **CONSTANT, data=data, max_steps=4)
    with pytest.raises(UsageError, match="is not the one that first began with"):
        go_on(first, Path("child"), max_steps=6, data={"paths": [str(other)]})
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    child = go_on(Path("../first"), Path("child"), max_steps=6)
    settings = yaml.safe_load((child / "config.yaml").read_text())
    assert settings["data"]["paths"] == [str(text)]  # so that the new run resumes from anywhere
    text.rename(tmp_path / "moved.txt")
    with pytest.raises(SourceError, match=r"if .*text.txt has moved, name it by --train"):
        go_on(Path("../first"), Path("none"), max_steps=6)
    moved = {"paths": ["../moved.txt"], "eval_paths": ["../moved.txt"]}
    again = go_on(Path("../first"), Path("again"), max_steps=6, data=moved)
    assert weights(child) == weights(again)


def test_a_dropped_optimizer_is_named_and_can_be_reset(tmp_path: Path) -> None:
    """Without bias correction, the first update of a new state is lr (1 - b1) / sqrt(1 - b2)."""
    adam = {"bias_correction": False, "betas": [0.9, 0.999], "learning_rate": 1e-3, "eps": 1e-12}
    plain = {"optimizer": adam, "save_steps": 2, "keep_optimizer": False, "save_total_limit": 9}
    first = run_training(tmp_path / "first", "bert", **CONSTANT | plain, max_steps=4)
    kept = {path.name for path in first.glob("checkpoints/*/optimizer*")}
    assert not kept and len(list_checkpoints(first)) == 2
    with pytest.raises(UsageError, match=r"ended without --keep-optimizer; --reset-optimizer"):
        go_on(first, tmp_path / "child", max_steps=6)
    assert not (tmp_path / "child").exists()
    child = go_on(first, tmp_path / "child", max_steps=6, reset_optimizer=True, **KEEP)
    state = json.loads((list_checkpoints(child)[6] / "state.json").read_bytes())
    assert state["optimizer_began"] == 4
    steps = {
        float(t)
        for n, t in tensors(list_checkpoints(child)[6])["optimizer"].items()
        if n.endswith(":step")
    }
    assert steps == {2.0}
    before, after = (tensors(list_checkpoints(child)[step])["weights"] for step in (4, 5))
    moved = [(after[name] - t).abs().flatten() for name, t in before.items() if t.dim() == 1]
    update = torch.cat(moved).median().item()
    assert update == pytest.approx(1e-3 * (1 - 0.9) / (1 - 0.999) ** 0.5, rel=0.01)


def test_a_damaged_checkpoint_of_the_parent_is_named_and_kept(
    parent: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    first = tmp_path / "first"
    shutil.copytree(parent, first)
    flip(list_checkpoints(first)[8] / "weights.safetensors")
    child = go_on(first, tmp_path / "child", max_steps=9)
    assert "step-00000008 is damaged; continuing from step-00000006" in caplog.text
    assert list(list_checkpoints(first)) == [6, 8]
    record = read_manifest(child).parent
    assert record is not None and record.step == 6


@pytest.mark.long
def test_one_run_of_several_seeds_is_continued(tmp_path: Path) -> None:
    seeds = tmp_path / "seeds"
    train_seeds(PretrainRun(tree("gpt", max_steps=2), HERE, seeds), 2)
    done = CliRunner().invoke(pretrain, ["--continue-from", str(seeds), "--max-steps", "4"])
    assert isinstance(done.exception, UsageError)
    assert "has runs of several seeds; name one, as" in str(done.exception)
    for more, message in (
        (["--seeds", "2"], "leave --seeds out"),
        (["--resume", str(seeds / "seed-0")], "leave --resume out"),
    ):
        done = CliRunner().invoke(pretrain, ["--continue-from", str(seeds / "seed-0"), *more])
        assert isinstance(done.exception, UsageError) and message in str(done.exception)
    done = CliRunner().invoke(pretrain, ["gpt", "--reset-optimizer"])
    assert isinstance(done.exception, UsageError)
    assert "is for --continue-from RUN" in str(done.exception)
    child = tmp_path / "child"
    done = CliRunner().invoke(
        pretrain,
        ["--continue-from", str(seeds / "seed-1"), "--max-steps", "3", "-o", str(child)],
        catch_exceptions=False,
    )
    assert done.exit_code == 0, done.output
    assert yaml.safe_load((child / "config.yaml").read_text())["seed"] == 1
    with pytest.raises(UsageError, match=r"not of `zoo finetune`; `zoo pretrain --continue-from"):
        go_on(child, tmp_path / "other", FineTuneRun)
    with pytest.raises(SourceError, match="is not a run"):
        go_on(tmp_path, tmp_path / "other")
