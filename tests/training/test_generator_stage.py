"""Replaced-token detection in two stages: the generator alone, then both."""

from pathlib import Path
from typing import Any

import pytest
import torch

from tests.training.making import HERE
from tests.training.runs import (
    NO_DROPOUT,
    assert_resumes_from,
    finish,
    finish_in_two_processes,
    options,
    records,
    run_training,
    small,
)
from zoo.errors import UsageError
from zoo.training.loss_module import LossModule
from zoo.training.setup import pretrain_setup, train_dataloader
from zoo.training.trainer import Trainer

pytestmark = pytest.mark.usefixtures("shared_home")
STEPS = 5
STAGES: dict[str, Any] = {
    "objective_args": {
        "generator_width_ratio": 1.0,
        "generator_depth_ratio": 1.0,
        "generator_fraction": STEPS / 12,  # of the 12 steps of `small`
    },
    "save_steps": 1,
    "save_total_limit": 20,
}
FAMILIES = ["electra", "deberta"]  # tied and disentangled embeddings


@pytest.mark.long
@pytest.mark.parametrize("family", FAMILIES)
def test_the_discriminator_starts_from_the_generator(family: str) -> None:
    setup = pretrain_setup(small(family, **STAGES))
    model: Any = setup.objective.model(setup.family, setup.model_config)
    start = {name: p.clone() for name, p in model.discriminator.named_parameters()}
    loader = train_dataloader(setup, HERE)
    trainer = Trainer(LossModule(setup.objective, model), setup.config, HERE, loader)
    shared = {id(parameter) for parameter in model.generator.parameters()}
    for step in range(STEPS):
        trainer.train_step(loader.make_batches(step))
        decay = setup.config.optimizer.weight_decay
        for name, parameter in model.discriminator.named_parameters():
            if id(parameter) not in shared and not decay:
                assert torch.equal(parameter, start[name]), name
    setup.objective.begin_step(model, STEPS, setup.config.max_steps)
    plain = setup.objective.models_to_save(model)["model"].module
    source = model.generator.state_dict()
    copied = 0
    for name, tensor in plain.state_dict().items():
        if not name.startswith("head."):
            assert torch.equal(tensor, source[name]), name
            copied += 1
    assert copied > 20
    before = {name: p.clone() for name, p in model.discriminator.named_parameters()}
    trainer.train_step(loader.make_batches(STEPS))
    moved = [n for n, p in model.discriminator.named_parameters() if not torch.equal(p, before[n])]
    assert len(moved) == len(before)
    loader.close()


@pytest.mark.long
def test_resume_is_exact_around_the_switch(tmp_path: Path) -> None:
    unbroken = run_training(tmp_path / "unbroken", "electra", **STAGES)
    losses = [record["losses"]["replaced-token-detection"] for record in records(unbroken)]
    assert losses[:STEPS] == [0.0] * STEPS
    assert min(losses[STEPS:]) > 0
    for record in records(unbroken, "validation"):  # of both models, from the beginning
        assert record["losses"]["replaced-token-detection"] > 0
    assert_resumes_from(unbroken, tmp_path, STEPS - 1, STEPS)


@pytest.mark.long
@pytest.mark.parametrize(
    "flags",
    [
        pytest.param([], id="replicated", marks=pytest.mark.long),
        pytest.param(["--fsdp"], id="sharded"),
    ],
)
def test_two_processes_have_the_losses_of_one(tmp_path: Path, flags: list[str]) -> None:
    arguments = ["electra", *options(**STAGES, config=NO_DROPOUT, max_steps=8), *flags]
    alone, run = tmp_path / "alone", tmp_path / "run"
    done = finish(*arguments, "-o", str(alone))
    assert done.returncode == 0, done.stderr
    finish_in_two_processes("pretrain", *arguments, "-o", str(run))
    losses = [[record["loss"] for record in records(path)] for path in (alone, run)]
    assert losses[1] == pytest.approx(losses[0], rel=1e-5)


def test_a_smaller_generator_cannot_be_copied() -> None:
    arguments = {"generator_width_ratio": 0.5, "generator_fraction": 0.5}
    with pytest.raises(UsageError, match="generator_fraction: hidden_size is 16 in the generator"):
        pretrain_setup(small("electra", objective_args=arguments))
