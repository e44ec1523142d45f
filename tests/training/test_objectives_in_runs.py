"""Properties of every objective of every family in a run.

Gradients do not depend on the number of micro-batches, the loss falls, and the result is a
checkpoint that other commands accept.
"""

from pathlib import Path
from typing import Any

import pytest
import torch

from tests.training.cases import dry, marked_cases
from tests.training.runs import records, run_training, small
from zoo.checkpoint import load_checkpoint
from zoo.conformance.verify import verify
from zoo.training.dataloader import BatchLoader
from zoo.training.distributed.context import DistContext
from zoo.training.loss_module import LossModule
from zoo.training.setup import PretrainSetup, build_dataset, pretrain_setup
from zoo.training.trainer import Trainer

pytestmark = pytest.mark.usefixtures("shared_home")
CASES = list(marked_cases())
# objectives that differ from another of their family in the texts; test_overfitting.py learns them
SAME_RUN = ("sentence-permutation", "text-infilling+sentence-permutation")
RUNS = [
    pytest.param(*case.values, marks=pytest.mark.long) if case.values[1] in SAME_RUN else case
    for case in CASES
]
# a recurrent layer takes the positions of a row one by one
CHANGES: dict[str, dict[str, Any]] = {"bidirectional-lm": {"seq_len": 16}}
HERE = DistContext(0, 1, torch.device("cpu"))


def trainer(setup: PretrainSetup, rows_at_once: int) -> tuple[Trainer, BatchLoader]:
    torch.manual_seed(0)
    loss_module = LossModule(
        setup.objective, setup.objective.model(setup.family, setup.model_config).double()
    )
    rows = build_dataset(setup, "train", 4)
    feed = BatchLoader(
        setup.objective, rows, seed=0, global_batch_size=4, micro_batch_size=rows_at_once
    )
    return Trainer(loss_module, setup.config, HERE, feed), feed


@pytest.mark.by_default("albert-masked-lm+sentence-order", "electra", "t5", "gpt")
@pytest.mark.parametrize(("family", "objective"), CASES)
def test_a_split_batch_gives_the_same_gradients(family: str, objective: str) -> None:
    """In float64 and without dropout, so that gradients are equal up to rounding."""
    changes = CHANGES.get(objective, {})
    setup = pretrain_setup(dry(small(family, objective=objective, **changes)))
    gradients_by_size = []
    for rows_at_once in (4, 1, 3):
        taught, feed = trainer(setup, rows_at_once)
        totals = taught.forward_backward(feed.make_batches(0))
        feed.close()
        gradients = {
            name: parameter.grad
            for name, parameter in taught.loss_module.model.named_parameters()
            if parameter.grad is not None
        }
        gradients_by_size.append(
            (gradients, totals.compute_and_reset(setup.objective.loss_weights))
        )
    (whole, losses), *parts = gradients_by_size
    assert whole
    for gradients, other in parts:
        assert other["loss"] == pytest.approx(losses["loss"], rel=1e-6)
        for name, gradient in whole.items():
            scale = max(1e-12, float(gradient.abs().max()))
            assert float((gradients[name] - gradient).abs().max()) <= 1e-6 * scale, name


@pytest.mark.by_default("gpt", "t5", "electra")
@pytest.mark.parametrize(("family", "objective"), RUNS)
def test_loss_falls_and_the_final_model_is_a_checkpoint(
    family: str, objective: str, tmp_path: Path
) -> None:
    run = run_training(
        tmp_path / "run",
        family,
        objective=objective,
        **CHANGES.get(objective, {}),
        max_steps=20,
        eval_sequences=16,
        micro_batch_tokens=None,
        eval_steps=10,
        save_steps=20,
        optimizer={"learning_rate": 2e-3},  # batches are far smaller than the recipe's
    )
    validation = [record["loss"] for record in records(run, "validation")]
    assert validation[-1] < validation[0]
    checkpoint = load_checkpoint(run / "model")
    assert checkpoint.manifest.training is not None
    failed = [check for check in verify(run / "model") if check.outcome not in ("ok", "not run")]
    assert not failed
