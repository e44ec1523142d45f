"""Runs whose steps learn nothing, and batches that the corpus does not fill."""

from pathlib import Path

import pytest

from tests.distillation.making import distill, pretrained
from tests.distillation.making import settings as distill_settings
from tests.training.runs import run_training
from zoo.errors import UsageError

ONE_STEP = {"max_steps": 1, "eval_steps": 1, "save_steps": 1}
SAID = "the learning rate is 0 in all 1 steps, and nothing is learned"


def test_a_step_of_warmup_alone(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    run_training(tmp_path / "run", "bert", **ONE_STEP)
    (line,) = [r.getMessage() for r in caplog.records if "learning rate is 0" in r.getMessage()]
    assert line == (f"warning: {SAID}; give more steps, or --set lr_scheduler.warmup_steps=0")
    caplog.clear()
    run_training(tmp_path / "other", "bert", **ONE_STEP, lr_scheduler={"warmup_steps": 0})
    assert "learning rate is 0" not in caplog.text


@pytest.mark.long
def test_a_step_of_warmup_alone_in_distillation(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    distill(tmp_path / "run", distill_settings(pretrained("bert"), "distilbert", **ONE_STEP))
    assert (
        f"{SAID}; give more steps, or --set lr_scheduler.warmup_steps=0 and warmup" in caplog.text
    )


def test_a_batch_that_the_corpus_does_not_fill(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"the train split .* fills \d+ rows of 64 tokens, and a"):
        run_training(tmp_path / "run", "bert", global_batch_tokens=64 << 14)
