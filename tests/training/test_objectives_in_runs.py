"""What holds for every objective of every family: splitting a batch changes nothing, the loss
falls, and what comes out is a checkpoint that the other commands take.
"""

from pathlib import Path

import pytest
import torch

from tests.training.cases import cases, dry
from tests.training.runs import records, small, train
from zoo.checkpoint import load_checkpoint
from zoo.training.feed import Feed
from zoo.training.job import Job, corpus_rows, prepare
from zoo.training.lesson import Lesson
from zoo.training.loop import Trainer
from zoo.training.ranks import Ranks
from zoo.verify import verify

pytestmark = pytest.mark.usefixtures("shared_home")
CASES = sorted(cases())
HERE = Ranks(0, 1, torch.device("cpu"))


def trainer(job: Job, rows_at_once: int) -> tuple[Trainer, Feed]:
    torch.manual_seed(0)
    lesson = Lesson(job.objective, job.objective.learner(job.family, job.config).double())
    rows = corpus_rows(job, "train", 4)
    feed = Feed(job.objective, rows, seed=0, per_step=4, per_micro=rows_at_once)
    return Trainer(lesson, job.settings, HERE, feed.micros), feed


@pytest.mark.parametrize(("family", "objective"), CASES)
def test_a_split_batch_gives_the_same_gradients(family: str, objective: str) -> None:
    """In float64 and without dropout, so that the formula alone is compared."""
    job = prepare(dry(small(family, objective=objective)))
    found = []
    for rows_at_once in (4, 1, 3):
        taught, feed = trainer(job, rows_at_once)
        totals = taught.accumulate(feed.make(0))
        feed.close()
        gradients = {
            name: parameter.grad
            for name, parameter in taught.lesson.learner.named_parameters()
            if parameter.grad is not None
        }
        found.append((gradients, totals.read(job.objective.terms)))
    (whole, losses), *parts = found
    assert whole
    for gradients, other in parts:
        assert other["loss"] == pytest.approx(losses["loss"], rel=1e-6)
        for name, gradient in whole.items():
            scale = max(1e-12, float(gradient.abs().max()))
            assert float((gradients[name] - gradient).abs().max()) <= 1e-6 * scale, name


@pytest.mark.parametrize(("family", "objective"), CASES)
def test_it_is_learnt_and_the_result_is_a_checkpoint(
    family: str, objective: str, tmp_path: Path
) -> None:
    run = train(
        tmp_path / "run",
        family,
        objective=objective,
        steps=30,
        micro_tokens=None,
        validate_every=10,
        save_every=30,
    )
    validation = [record["loss"] for record in records(run, "validation")]
    assert validation[-1] < validation[0]
    checkpoint = load_checkpoint(run / "model")
    assert checkpoint.manifest.training is not None
    failed = [check for check in verify(run / "model") if check.outcome not in ("ok", "not run")]
    assert not failed
