"""Program for several processes that trains objectives for a few steps and writes the losses.

Its arguments are OUTPUT FAMILY:OBJECTIVE[:fsdp] ...
"""

import json
from collections.abc import Sequence
from pathlib import Path

import torch
from msgspec.structs import replace

from tests.training.cases import dry
from tests.training.runs import small
from zoo.training.dataloader import BatchLoader
from zoo.training.distributed.context import DistContext
from zoo.training.loss_module import LossModule
from zoo.training.setup import build_dataset, pretrain_setup
from zoo.training.trainer import Trainer

STEPS, ROWS = 3, 4


def losses(name: str, dist: DistContext) -> list[float]:
    """Train, and return the loss of each step."""
    family, objective, *shard = name.split(":")
    config = dry(small(family, objective=objective))
    config = replace(config, fsdp=bool(shard) and dist.world_size > 1)
    setup = pretrain_setup(config)
    torch.manual_seed(0)
    loss_module = LossModule(
        setup.objective, setup.objective.model(setup.family, setup.model_config)
    )
    feed = BatchLoader(
        setup.objective,
        build_dataset(setup, "train", ROWS),
        seed=0,
        global_batch_size=ROWS,
        micro_batch_size=1,
        rank=dist.rank,
        world_size=dist.world_size,
    )
    trainer = Trainer(loss_module, config, dist, feed)
    values = []
    for step in range(STEPS):
        trainer.train_step(feed.make_batches(step))
        values.append(trainer.train_metrics.compute_and_reset(setup.objective.loss_weights)["loss"])
    feed.close()
    return values


def main(arguments: Sequence[str]) -> None:
    output, *names = arguments
    dist = DistContext.initialize("cpu")
    losses_by_name = {name: losses(name, dist) for name in names}
    if dist.is_main_process:
        Path(output).write_text(json.dumps(losses_by_name), encoding="utf-8")
    dist.destroy()
